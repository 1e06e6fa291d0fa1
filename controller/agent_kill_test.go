package controller_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// steps exceeds the number of side effects in the tests below; the last ones kill nothing.
const steps = 45

// TestAKillAtEachStepFromSpawnToResult: after a kill at any side effect the agent is started once, the prompt is delivered once, and its
// answer is recorded once.
func TestAKillAtEachStepFromSpawnToResult(t *testing.T) {
	eachKill(t, func(t *testing.T, p *player, fuse int) {
		box := p.readyBox(t)
		if err := p.restart(fuse); err != nil {
			t.Fatal(err)
		}
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{InitialPrompt: "begin"})
		p.prompt(t, "ada", "work 20000")
		pass(10 * time.Second)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Second)
		p.wantTriggers(t, "ada", "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED PROMPT_RECEIVED RESULT_RECEIVED")
		p.wantOutcomes(t, "ada", "initial.1:end_turn work_20000:end_turn")
		p.wantGiven(t, "work 20000", 1)
		p.wantWhole(t, "ada")
	})
}

// TestAKillAtEachStepFromCrashToRedelivery: nothing is delivered twice except for the one redelivery.
func TestAKillAtEachStepFromCrashToRedelivery(t *testing.T) {
	eachKill(t, func(t *testing.T, p *player, fuse int) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", nil)
		pass(time.Second)
		p.prompt(t, "ada", "crash-before 2 2000")
		pass(time.Second)
		if err := p.restart(fuse); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		p.wantTriggers(t, "ada", "SPAWN CONNECTED PROMPT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED")
		if list := p.wantGiven(t, "crash-before 2 2000", 2); list[0].execID != "ada.1" || list[1].execID != "ada.2" {
			t.Errorf("given to %+v", list)
		}
		p.wantWhole(t, "ada")
	})
}

// TestAKillAtEachStepOfAStop covers the turn, the nudge, the save and the stop itself.
func TestAKillAtEachStepOfAStop(t *testing.T) {
	eachKill(t, func(t *testing.T, p *player, fuse int) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{Nudge: "finish", SaveCommand: []string{"sleep", "1000", "0"}})
		pass(time.Second)
		p.prompt(t, "ada", "deaf")
		pass(time.Second)
		if err := p.restart(fuse); err != nil {
			t.Fatal(err)
		}
		p.stopBox(t, box)
		pass(45 * time.Second)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(45 * time.Second)
		p.wantState(t, box, boxStopped)
		p.wantTriggers(t, "ada", "SPAWN CONNECTED PROMPT_RECEIVED DRAIN_PARKED")
		if n := len(p.shim.said.prompts("nudge")); n > 1 {
			t.Errorf("%d nudges", n)
		}
		if got := p.queue(t, "ada"); got != "deaf" {
			t.Errorf("queue %q", got)
		}
		p.wantWhole(t, "ada")
	})
}

// TestAKillAtEachStepOfADrain: after a kill at any step all agents restart.
func TestAKillAtEachStepOfADrain(t *testing.T) {
	eachKill(t, func(t *testing.T, p *player, fuse int) {
		box := p.readyBox(t)
		for _, id := range []string{"ada", "bob"} {
			p.newAgent(t, box, id, &agboxv1.AgentSpec{Nudge: "finish", SaveCommand: []string{"sleep", "1000", "0"}})
		}
		pass(time.Second)
		p.prompt(t, "ada", "work 30000")
		pass(time.Second)
		if err := p.restart(fuse); err != nil {
			t.Fatal(err)
		}
		_, _ = p.daemon.Drain(t.Context(), drainFor(5*time.Second))
		pass(30 * time.Second)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(90 * time.Second)
		p.wantAgent(t, "bob", agentIdle)
		p.wantAgent(t, "ada", agentIdle)
		if got := p.outcomes(t, "ada"); got != "work_30000:end_turn" && got != "work_30000:interrupted work_30000:end_turn" {
			t.Errorf("%s; %s", got, p.triggers(t, "ada"))
		}
		p.wantWhole(t, "ada")
	})
}

// eachKill kills the daemon after each of its side effects; with -short after every third, starting at a random one.
func eachKill(t *testing.T, test func(t *testing.T, p *player, fuse int)) {
	t.Helper()
	every := 1
	if testing.Short() {
		every = 3
	}
	for fuse := rand.IntN(every); fuse < steps; fuse += every {
		t.Run(fmt.Sprint(fuse), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, err := os.MkdirTemp(fastDir(), "agbox-kill-")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				p := newPlayer(dir)
				defer func() {
					if err := p.close(); err != nil {
						t.Error(err)
					}
				}()
				if err := p.start(-1); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				test(t, p, fuse)
			})
		})
	}
}

// fastDir returns an in-memory directory; "", the default, if there is none.
func fastDir() string {
	if _, err := os.Stat("/dev/shm"); err != nil {
		return ""
	}
	return "/dev/shm"
}

// wantWhole fails unless the history of an agent has no gap except for superseded snapshots, and no status is left.
func (p *player) wantWhole(t *testing.T, id string) {
	t.Helper()
	if err := checkAgentHistory(p.agentEvents(t, id)); err != nil {
		t.Error(err)
	}
	if line, unverified := p.daemon.AgentStatus(id); unverified || strings.HasPrefix(line, "retrying") {
		t.Errorf("unverified %v, %q", unverified, line)
	}
}

// checkAgentHistory: sequences rise, and only snapshots superseded by a completed message, or by the end of the turn, may be missing, never
// the newest snapshot of a part. Every BUSY has one prompt before it and one result after it.
func checkAgentHistory(events []*agboxv1.AgentEvent) error {
	var last uint64
	open := false
	for _, ev := range events {
		// Only snapshots that a newer one replaced may be missing, and the events after one belong to a message.
		between := ev.GetTransition() != nil || ev.GetResult() != nil
		if gap := ev.GetSequence() - last - 1; ev.GetSequence() <= last || gap > 0 && between {
			return fmt.Errorf("%s has sequence %d after %d", ev.GetEventType(), ev.GetSequence(), last)
		}
		last = ev.GetSequence()
		if ev.GetTransition() == nil {
			continue
		}
		busy := ev.GetTransition().GetTo() == agentBusy
		if open && busy {
			return fmt.Errorf("event %d: BUSY twice", last)
		}
		open = busy
	}
	return nil
}
