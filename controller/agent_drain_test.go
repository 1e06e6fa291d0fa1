package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/store"
)

const (
	park    = agboxv1.DrainMode_DRAIN_MODE_PARK
	detach  = agboxv1.DrainMode_DRAIN_MODE_DETACH
	waiting = agboxv1.DrainPhase_DRAIN_PHASE_WAITING
	saving  = agboxv1.DrainPhase_DRAIN_PHASE_SAVING
	done    = agboxv1.DrainPhase_DRAIN_PHASE_DONE
)

func (p *player) drain(t *testing.T, o store.DrainOptions) {
	t.Helper()
	if o.Mode == 0 {
		o.Mode = park
	}
	if o.Wait == 0 {
		o.Wait = 10 * time.Minute
	}
	if _, err := p.daemon.Drain(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

func (p *player) undrain(t *testing.T) {
	t.Helper()
	if _, err := p.daemon.Undrain(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (p *player) wantDrain(t *testing.T, want string) {
	t.Helper()
	s := p.daemon.DrainStatus()
	got := "none"
	if s.GetDraining() {
		got = fmt.Sprintf("%s parked:%d saved:%d not:%d busy:%d", enum.Word(s.GetPhase()),
			s.GetParked(), s.GetSaved(), s.GetNotSaved(), s.GetBusy())
	}
	if got != want {
		t.Fatalf("the drain is %s, want %s", got, want)
	}
}

// crew creates an idle agent, one whose turn ends after a nudge, one that works for a minute, and one whose turn never ends.
func crew(t *testing.T, p *player) {
	t.Helper()
	box := p.readyBox(t)
	for _, id := range []string{"idle", "nudged", "works", "hangs"} {
		p.newAgent(t, box, id, &agboxv1.AgentSpec{Nudge: "finish", SaveCommand: []string{"sleep", "5000", "0"}})
	}
	pass(time.Second)
	p.prompt(t, "nudged", "until-nudged")
	p.prompt(t, "works", "work 60000")
	p.prompt(t, "hangs", "deaf")
	pass(100 * time.Millisecond)
}

func TestADrainGoesThroughItsPhases(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		p.drain(t, store.DrainOptions{Reason: "test"})
		p.prompt(t, "idle", "for later")
		pass(2 * time.Second)
		p.wantAgent(t, "idle", agentStopped)
		p.wantAgent(t, "nudged", agentStopped)
		p.wantOutcomes(t, "nudged", "until-nudged:end_turn")
		p.wantDrain(t, "WAITING parked:2 saved:0 not:0 busy:2")
		pass(time.Minute)
		p.wantDrain(t, "WAITING parked:3 saved:0 not:0 busy:1")
		pass(9*time.Minute - 3*time.Second)
		p.wantDrain(t, "WAITING parked:3 saved:0 not:0 busy:1")
		pass(3 * time.Second)
		p.wantDrain(t, "SAVING parked:3 saved:0 not:0 busy:1")
		pass(20 * time.Second)
		p.wantDrain(t, "DONE parked:4 saved:1 not:0 busy:0")
		if a := p.agent(t, "hangs"); a.Status.GetSaved() != store.Saved || p.queue(t, "hangs") != "deaf" {
			t.Errorf("%v, queue %q", a.Status, p.queue(t, "hangs"))
		}
		if n := len(p.shim.said.prompts("nudge")); n != 3 {
			t.Errorf("%d nudges", n)
		}
		p.wantGiven(t, "for later", 0)
		p.undrain(t)
		pass(2 * time.Second)
		p.wantDrain(t, "none")
		p.wantOutcomes(t, "idle", "for_later:end_turn")
		p.wantAgent(t, "hangs", agentBusy)
		p.wantGiven(t, "deaf", 2)
	})
}

func TestSaveNowSavesStragglersAtOnce(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		p.drain(t, store.DrainOptions{})
		pass(2 * time.Second)
		if err := p.daemon.SaveNow(context.Background()); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		p.wantDrain(t, "DONE parked:4 saved:2 not:0 busy:0")
		p.wantOutcomes(t, "works", "work_60000:interrupted")
		if got := p.queue(t, "works"); got != "work_60000" {
			t.Errorf("the prompt that was cut off: %q", got)
		}
	})
}

func TestSavingIsBounded(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		for i := range 12 {
			id := fmt.Sprintf("a-%d", i)
			p.newAgent(t, box, id, &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000000", "0"}})
			p.prompt(t, id, "hang")
		}
		pass(time.Second)
		p.drain(t, store.DrainOptions{Wait: time.Second})
		pass(63 * time.Second)
		p.wantDrain(t, "DONE parked:12 saved:0 not:12 busy:0")
	})
}

func TestAnAgentWithoutASaveCommandIsSavedByGit(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "hang")
		pass(time.Second)
		p.drain(t, store.DrainOptions{Wait: time.Second})
		pass(10 * time.Second)
		p.wantDrain(t, "DONE parked:1 saved:0 not:0 busy:0") // there is no work tree, so there is nothing to save
		if saved := p.agent(t, id).Status.GetSaved(); saved != "" {
			t.Errorf("its work is %q", saved)
		}
	})
}

func TestAnUndrainRestoresAllAgents(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		p.drain(t, store.DrainOptions{})
		pass(2 * time.Second)
		p.prompt(t, "works", "and then")
		p.undrain(t)
		pass(2 * time.Second)
		p.wantAgent(t, "idle", agentIdle)
		p.wantAgent(t, "works", agentBusy)
		if a := p.agent(t, "works"); a.Status.GetParked() {
			t.Error("it is parked still")
		}
		pass(time.Minute)
		// a nudged process gets no further prompt: it may have taken the nudge for one
		p.wantOutcomes(t, "works", "work_60000:end_turn and_then:end_turn")
		if list := p.wantGiven(t, "and then", 1); list[0].execID != "works.2" {
			t.Errorf("given to %s", list[0].execID)
		}
	})
}

func TestANudgeIsDeliveredOncePerTurn(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{Nudge: "finish"}, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "deaf")
		pass(time.Second)
		for range 3 {
			p.drain(t, store.DrainOptions{})
			pass(time.Second)
			p.undrain(t)
			if err := p.restart(-1); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		p.ask(t, p.store.RequestInterrupt, id)
		pass(time.Second)
		if n := len(p.shim.said.prompts("nudge")); n != 1 {
			t.Errorf("%d nudges", n)
		}
		size, err := p.journals().InboxSize(p.agent(t, id).SandboxID, "ada.1")
		if err != nil || size == 0 {
			t.Fatal(size, err)
		}
		if line, _ := p.daemon.AgentStatus(id); !strings.HasPrefix(line, "it was asked to end its turn") {
			t.Errorf("the interrupt behind the nudge: %q", line)
		}
	})
}

// TestADrainEndsWithItsDaemon kills the daemon in each phase: the flag never outlives it, nothing is lost, and all agents restart.
func TestADrainEndsWithItsDaemon(t *testing.T) {
	for _, row := range []struct {
		name  string
		after time.Duration
		phase agboxv1.DrainPhase
	}{
		{"at once", time.Millisecond, waiting},
		{"while it waits", 5 * time.Second, waiting},
		{"while it saves", 32 * time.Second, saving},
		{"when it is done", 50 * time.Second, done},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				crew(t, p)
				p.drain(t, store.DrainOptions{Wait: 30 * time.Second})
				pass(row.after)
				if got := p.daemon.DrainStatus().GetPhase(); got != row.phase {
					t.Fatalf("phase %s", got)
				}
				if err := p.restart(-1); err != nil {
					t.Fatal(err)
				}
				p.wantDrain(t, "none")
				pass(3 * time.Minute)
				p.wantAgent(t, "idle", agentIdle)
				p.wantAgent(t, "hangs", agentBusy)
				for id, text := range map[string]string{"nudged": "until-nudged", "works": "work 60000"} {
					if given := len(p.shim.said.prompts(promptID(text))); id == "works" && (given < 1 || given > 2) {
						t.Errorf("%s was given %d times", text, given)
					}
				}
				p.wantAgent(t, "works", agentIdle)
				if got := p.outcomes(t, "works"); !strings.HasSuffix(got, "work_60000:end_turn") {
					t.Errorf("works: %s", got)
				}
			})
		})
	}
}

func TestAHostDeathDuringADrainRestartsAllAgents(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		p.drain(t, store.DrainOptions{})
		pass(time.Second)
		p.must(t, act{"reboot", 0})
		pass(30 * time.Second)
		p.wantAgent(t, "idle", agentIdle)
		p.wantAgent(t, "works", agentBusy)
		if a := p.agent(t, "works"); a.Status.GetAttempts() != 1 || !strings.HasSuffix(p.triggers(t, "works"), "DRAIN_PARKED SPAWN CONNECTED PROMPT_RECEIVED") {
			t.Errorf("%v: %s", a.Status, p.triggers(t, "works"))
		}
	})
}

func TestADrainIsOverAfterAnHour(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		p.drain(t, store.DrainOptions{Wait: time.Minute})
		pass(59 * time.Minute)
		p.wantAgent(t, "idle", agentStopped)
		pass(3 * time.Minute)
		p.wantDrain(t, "none")
		p.wantAgent(t, "idle", agentIdle)
	})
}

// TestADrainLeavesThePausedAlone: a frozen process neither finishes nor ends, and outlives the daemon unchanged.
func TestADrainLeavesThePausedAlone(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		if _, err := p.store.RequestPause(context.Background(), p.boxes[0], "pause_requested"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		p.wantState(t, p.boxes[0], boxPaused)
		p.drain(t, store.DrainOptions{})
		pass(time.Second)
		p.wantDrain(t, "DONE parked:0 saved:0 not:0 busy:0")
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if _, err := p.store.RequestResume(context.Background(), p.boxes[0]); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.wantTriggers(t, "idle", "SPAWN CONNECTED")
		p.wantTriggers(t, "works", "SPAWN CONNECTED PROMPT_RECEIVED")
		pass(time.Minute)
		p.wantOutcomes(t, "works", "work_60000:end_turn")
	})
}

func TestADetachLeavesAllAsItIs(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		crew(t, p)
		p.drain(t, store.DrainOptions{Mode: detach})
		p.prompt(t, "idle", "for later")
		pass(time.Second)
		p.wantDrain(t, "DONE parked:0 saved:0 not:0 busy:3")
		p.wantAgent(t, "idle", agentIdle)
		p.wantGiven(t, "for later", 0)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantOutcomes(t, "idle", "for_later:end_turn")
		p.wantTriggers(t, "works", "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED")
		if n := len(p.shim.said.prompts("nudge")); n != 0 {
			t.Errorf("%d nudges", n)
		}
	})
}

func drainFor(wait time.Duration) store.DrainOptions {
	return store.DrainOptions{Mode: park, Wait: wait, Reason: "test"}
}

// Drains, stops and deaths of the engine are not of the prompt's making: however often they cut its turn off, it is given again.
func TestPlannedInterruptionsHoldNoPrompt(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{})
		pass(time.Second)
		p.prompt(t, "ada", "work 600000")
		pass(time.Second)
		for range 2 {
			p.drain(t, store.DrainOptions{Wait: time.Second})
			pass(time.Minute)
			p.undrain(t)
			pass(time.Minute)
			p.wantAgent(t, "ada", agentBusy)
			p.stopBox(t, box)
			pass(2 * time.Minute)
			p.must(t, act{"resume", 0})
			pass(time.Minute)
			p.wantAgent(t, "ada", agentBusy)
			p.engine.RestartEngine(false)
			pass(time.Minute)
			p.wantAgent(t, "ada", agentBusy)
		}
		p.wantGiven(t, "work 600000", 7)
		pass(15 * time.Minute)
		if queue := p.queue(t, "ada"); queue != "" {
			t.Errorf("the queue is %s", queue)
		}
	})
}

// The second death of the process in a turn may be of the prompt's making.
func TestAPromptThatKillsItsAgentTwiceIsHeld(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.newAgent(t, p.readyBox(t), "ada", &agboxv1.AgentSpec{})
		pass(time.Second)
		p.prompt(t, "ada", "crash 1000")
		p.prompt(t, "ada", "work 1000")
		pass(time.Minute)
		if queue := p.queue(t, "ada"); queue != "crash_1000*" {
			t.Errorf("the queue is %s", queue)
		}
		a, err := p.store.Agent(t.Context(), "ada")
		if err != nil || a.Held != 1 || !strings.Contains(a.HeldReason, "ended with code") {
			t.Errorf("%d held because %q; %v", a.Held, a.HeldReason, err)
		}
	})
}
