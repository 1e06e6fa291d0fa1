package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	boxReady   = agboxv1.SandboxState_SANDBOX_STATE_READY
	boxStopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	boxDeleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	boxPaused  = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
)

// TestAStopWaitsForTurns: how the turn of an agent ends when its sandbox is stopped, how long that takes, and what is recorded about its
// work.
func TestAStopWaitsForTurns(t *testing.T) {
	for _, row := range []struct {
		name, text      string
		spec            *agboxv1.AgentSpec
		down            time.Duration // it is down by then, and was not 2 s before
		triggers, saved string
		outcome, queue  string
	}{
		{name: "idle: at once", down: 2 * time.Second, triggers: "DRAIN_PARKED"},
		{name: "a turn that ends in time", text: "work 10000", down: 12 * time.Second,
			triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", outcome: "end_turn"},
		{name: "a turn that ends for the nudge", text: "until-nudged", spec: &agboxv1.AgentSpec{Nudge: "finish"}, down: 2 * time.Second,
			triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", outcome: "end_turn"},
		{name: "a turn that ends when it is interrupted: its work is saved", text: "hang",
			spec: &agboxv1.AgentSpec{Nudge: "finish", SaveCommand: []string{"sleep", "5000", "0"}}, down: 22 * time.Second,
			triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", saved: "saved", outcome: "interrupted", queue: "hang"},
		{name: "a turn that ends by itself just before", text: "work 14900", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "5000", "0"}},
			down: 16 * time.Second, triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", outcome: "end_turn"},
		{name: "a turn without an end: its work is saved", text: "deaf",
			spec: &agboxv1.AgentSpec{Nudge: "finish", SaveCommand: []string{"sleep", "5000", "0"}}, down: 27 * time.Second,
			triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "saved", outcome: "interrupted", queue: "deaf"},
		{name: "a save that fails", text: "hang", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000", "3"}},
			down: 18 * time.Second, triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", saved: "not saved", outcome: "interrupted", queue: "hang"},
		{name: "nothing to save", text: "hang", down: 17 * time.Second, triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED",
			outcome: "interrupted", queue: "hang"},
		{name: "a save that fails with the exit code for nothing to save, in a command of one's own", text: "hang",
			spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000", "66"}}, down: 18 * time.Second,
			triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", saved: "not saved", outcome: "interrupted", queue: "hang"},
		{name: "a save without an end is given up", text: "deaf", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000000", "0"}},
			down: 32 * time.Second, triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "not saved", outcome: "interrupted", queue: "deaf"},
		{name: "a turn that crashes", text: "crash 3000", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "5000", "0"}}, down: 5 * time.Second,
			triggers: "PROMPT_RECEIVED PROCESS_CRASHED", outcome: "interrupted", queue: "crash_3000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withAgent(t, row.spec, func(t *testing.T, p *player, box, id string) {
				if row.text != "" {
					p.prompt(t, id, row.text)
					pass(50 * time.Millisecond)
					p.wantAgent(t, id, agentBusy)
				}
				p.stopBox(t, box)
				pass(row.down - 2*time.Second)
				if sb := p.sandbox(t, box); row.down > 2*time.Second && sb.State == boxStopped {
					t.Errorf("it is STOPPED too soon")
				}
				pass(2 * time.Second)
				p.wantState(t, box, boxStopped)
				p.wantTriggers(t, id, strings.TrimSpace("SPAWN CONNECTED "+row.triggers))
				if got := p.agent(t, id).Status.GetSaved(); got != row.saved {
					t.Errorf("its work is %q, want %q", got, row.saved)
				}
				if row.outcome != "" {
					p.wantOutcomes(t, id, promptID(row.text)+":"+row.outcome)
				}
				if got := p.queue(t, id); got != row.queue {
					t.Errorf("queue %q, want %q", got, row.queue)
				}
			})
		})
	}
}

func TestAnAgentRestartsWithItsSandboxAndItsConversation(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "remember this")
		pass(time.Second)
		p.stopBox(t, box)
		pass(5 * time.Second)
		p.prompt(t, id, "asked while stopped")
		p.wantAgent(t, id, agentStopped)
		if _, err := p.store.RequestResume(context.Background(), box); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p.wantAgent(t, id, agentIdle)
		list := p.wantGiven(t, "asked while stopped", 1)
		if !strings.Contains(list[0].text, "remember this") || !strings.Contains(list[0].text, "<agbox-context>") {
			t.Errorf("it was told %q", list[0].text)
		}
		if a := p.agent(t, id); a.Status.GetAttempts() != 1 || a.Status.GetParked() {
			t.Errorf("%v", a.Status)
		}
	})
}

func TestADeleteWaitsForTurnsAsAStopDoes(t *testing.T) {
	for _, row := range []struct {
		name, text, nudge string
		gone              time.Duration
	}{
		{"idle: at once", "", "finish", 3 * time.Second},
		{"a turn that ends by itself", "work 10000", "", 13 * time.Second},
		{"a turn that ends when it is interrupted", "hang", "", 18 * time.Second},
		{"a turn that ends for the nudge", "until-nudged", "finish", 3 * time.Second},
		{"a turn without an end", "deaf", "finish", 23 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{Nudge: row.nudge}, func(t *testing.T, p *player, box, id string) {
				if row.text != "" {
					p.prompt(t, id, row.text)
					pass(50 * time.Millisecond)
				}
				if _, err := p.store.RequestDelete(context.Background(), box, "delete_requested"); err != nil {
					t.Fatal(err)
				}
				pass(row.gone - 4*time.Second)
				if row.gone > 4*time.Second {
					p.wantAgent(t, id, agentBusy)
				}
				pass(4 * time.Second)
				p.wantState(t, box, boxDeleted)
				if _, err := p.store.Agent(context.Background(), id); !errdefs.IsNotFound(err) {
					t.Errorf("the agent is still there: %v", err)
				}
				if n := len(p.shim.said.prompts("nudge")); row.text == "deaf" && n != 1 {
					t.Errorf("nudged %d times", n)
				}
			})
		})
	}
}

func TestAnAgentThatIsDeletedItselfGoesAtOnce(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{Nudge: "finish"}, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "hang")
		pass(50 * time.Millisecond)
		p.ask(t, p.store.RequestAgentDelete, id)
		pass(2 * time.Second)
		if _, err := p.store.Agent(context.Background(), id); !errdefs.IsNotFound(err) {
			t.Errorf("the agent is still there: %v", err)
		}
		p.wantState(t, box, boxReady)
	})
}

// TestAFrozenTurnStaysBusy: a pause leaves it BUSY; a stop of the paused sandbox thaws it for the rest of its time.
func TestAFrozenTurnStaysBusy(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{Nudge: "finish"}, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "until-nudged")
		pass(50 * time.Millisecond)
		if _, err := p.store.RequestPause(context.Background(), box, "pause_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		p.wantState(t, box, boxPaused)
		p.wantAgent(t, id, agentBusy)
		p.stopBox(t, box)
		pass(5 * time.Second)
		p.wantState(t, box, boxStopped)
		p.wantOutcomes(t, id, "until-nudged:end_turn")
	})
}

func TestADemotionCutsTheTurnOff(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "hang")
		pass(50 * time.Millisecond)
		if _, err := p.store.RequestPause(context.Background(), box, "pause_requested"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if _, err := p.store.Demote(context.Background(), box); err != nil {
			t.Fatal(err)
		}
		pass(15 * time.Second)
		p.wantState(t, box, boxPaused)
		p.wantAgent(t, id, agentStopped)
		if _, err := p.store.RequestResume(context.Background(), box); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p.wantAgent(t, id, agentBusy)
		p.wantGiven(t, "hang", 2)
	})
}

// TestAnInterruptedTurnIsSavedOnce: the turn was interrupted in another process, and its work was saved then.
func TestAnInterruptedTurnIsSavedOnce(t *testing.T) {
	spec := &agboxv1.AgentSpec{OnInterrupted: "hold", SaveCommand: []string{"sleep", "8000", "0"}}
	withAgent(t, spec, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "hang")
		pass(50 * time.Millisecond)
		p.stopBox(t, box)
		pass(25 * time.Second)
		p.wantState(t, box, boxStopped)
		p.must(t, act{"resume", 0})
		pass(2 * time.Second)
		p.wantAgent(t, id, agentIdle)
		p.stopBox(t, box)
		pass(2 * time.Second)
		p.wantState(t, box, boxStopped)
		if got := p.agent(t, id).Status.GetSaved(); got != "" {
			t.Errorf("its work is %q", got)
		}
	})
}
