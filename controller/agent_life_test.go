package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

func TestAnAgentAnswersPromptsInOrder(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "first")
		p.prompt(t, id, "second")
		p.prompt(t, id, "first") // a retry
		pass(50 * time.Millisecond)
		p.wantAgent(t, id, agentBusy)
		pass(time.Second)
		p.wantAgent(t, id, agentIdle)
		p.wantOutcomes(t, id, "first:end_turn second:end_turn")
		p.wantGiven(t, "first", 1)
		p.wantTriggers(t, id, "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED PROMPT_RECEIVED RESULT_RECEIVED")
	})
}

func TestAnInitialPromptIsGivenOnceInALife(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{InitialPrompt: "begin"}, func(t *testing.T, p *player, _, id string) {
		p.wantOutcomes(t, id, "initial.1:end_turn")
		p.ask(t, p.store.RequestAgentStop, id)
		pass(time.Second)
		p.wantAgent(t, id, agentStopped)
		p.ask(t, p.store.RequestAgentRun, id)
		pass(time.Second)
		p.wantAgent(t, id, agentIdle)
		if n := len(p.shim.said.prompts("initial.1")); n != 1 {
			t.Errorf("given %d times", n)
		}
	})
}

// TestWhatEndsATurn has a row for each way in which a turn can end without its result.
func TestWhatEndsATurn(t *testing.T) {
	const begin = "SPAWN CONNECTED PROMPT_RECEIVED "
	for _, row := range []struct {
		name, text, hold, want, outcomes, queue string
		given                                   int
	}{
		{name: "a crash: given once more, in the next process", text: "crash-before 2", given: 2,
			want: begin + "PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED", outcomes: ":interrupted :end_turn"},
		{name: "two crashes: given no more", text: "crash", given: 2,
			want: begin + "PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":interrupted :interrupted", queue: "*"},
		{name: "hold: not given again", text: "crash", hold: "hold", given: 1,
			want: begin + "PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":interrupted", queue: "*"},
		{name: "gone with code 0 without a result", text: "exit", given: 2,
			want: begin + "PROCESS_EXITED SPAWN CONNECTED PROMPT_RECEIVED PROCESS_EXITED SPAWN CONNECTED", outcomes: ":interrupted :interrupted", queue: "*"},
		{name: "a result, and then the end: the result counts", text: "result-then-die", given: 1,
			want: begin + "RESULT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":end_turn"},
		{name: "a result, and then code 0: stays stopped", text: "result-then-exit", given: 1,
			want: begin + "RESULT_RECEIVED PROCESS_EXITED", outcomes: ":end_turn"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{OnInterrupted: row.hold}, func(t *testing.T, p *player, _, id string) {
				p.prompt(t, id, row.text)
				pass(30 * time.Second)
				p.wantTriggers(t, id, row.want)
				p.wantGiven(t, row.text, row.given)
				p.wantOutcomes(t, id, named(row.outcomes, ":", row.text))
				if got, want := p.queue(t, id), named(row.queue, "*", row.text); got != want {
					t.Errorf("queue %q, want %q", got, want)
				}
			})
		})
	}
}

// named inserts a prompt's ID before each mark.
func named(pattern, mark, text string) string {
	return strings.ReplaceAll(pattern, mark, promptID(text)+mark)
}

// agentIn brings an agent into a state.
func agentIn(t *testing.T, p *player, state agboxv1.AgentState) (box string) {
	t.Helper()
	box = p.readyBox(t)
	spec := &agboxv1.AgentSpec{RestartPolicy: "never"}
	switch state {
	case agentPending:
		p.drain(t, drainFor(time.Second)) // nothing starts
	case agentStarting:
		spec.Command = []string{"agent", "boot=30000"}
	case agentFailed:
		spec.Command = []string{"agent", "die=1", "until=2"}
	case agentStopped:
		spec.Command = []string{"agent", "life=100", "die=0", "until=2"}
	}
	p.newAgent(t, box, "ada", spec)
	pass(time.Second)
	if state == agentBusy {
		p.prompt(t, "ada", "hang")
		pass(100 * time.Millisecond)
	}
	p.wantAgent(t, "ada", state)
	return box
}

var agentStates = []agboxv1.AgentState{agentPending, agentStarting, agentIdle, agentBusy, agentStopped, agentFailed}

func TestAStopOfAnAgentInEachState(t *testing.T) {
	for _, state := range agentStates {
		t.Run(state.String(), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				box := agentIn(t, p, state)
				p.ask(t, p.store.RequestAgentStop, "ada")
				pass(time.Second)
				p.wantAgent(t, "ada", agentStopped)
				if active := p.store.ActiveExecs(box); len(active) > 0 {
					t.Errorf("%v still run", active)
				}
				p.undrainIfAny(t)
				pass(time.Minute)
				p.wantAgent(t, "ada", agentStopped) // permanently
				p.ask(t, p.store.RequestAgentRun, "ada")
				pass(32 * time.Second)
				if state == agentBusy { // its prompt is redelivered
					p.wantAgent(t, "ada", agentBusy)
					p.wantGiven(t, "hang", 2)
					return
				}
				p.wantAgent(t, "ada", agentIdle)
			})
		})
	}
}

func (p *player) undrainIfAny(t *testing.T) {
	t.Helper()
	if p.daemon.DrainStatus().GetDraining() {
		p.undrain(t)
	}
}

func TestADeleteOfAnAgentInEachState(t *testing.T) {
	for _, state := range agentStates {
		t.Run(state.String(), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				box := agentIn(t, p, state)
				p.ask(t, p.store.RequestAgentDelete, "ada")
				pass(time.Second)
				if _, err := p.store.Agent(context.Background(), "ada"); !errdefs.IsNotFound(err) {
					t.Errorf("it is still there: %v", err)
				}
				if active := p.store.ActiveExecs(box); len(active) > 0 {
					t.Errorf("%v still run", active)
				}
				p.wantState(t, box, boxReady)
			})
		})
	}
}

// TestAStartOfAnAgentInEachState: a stopped agent starts under any policy, and a running one is left alone.
func TestAStartOfAnAgentInEachState(t *testing.T) {
	for _, state := range agentStates {
		t.Run(state.String(), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				agentIn(t, p, state)
				before := p.agent(t, "ada").Status.GetIncarnation()
				p.ask(t, p.store.RequestAgentRun, "ada")
				p.undrainIfAny(t)
				pass(time.Second)
				want := map[agboxv1.AgentState]agboxv1.AgentState{agentStarting: agentStarting, agentBusy: agentBusy}[state]
				if want == 0 {
					want = agentIdle
				}
				p.wantAgent(t, "ada", want)
				again := state == agentStopped || state == agentFailed || state == agentPending
				if got := p.agent(t, "ada").Status.GetIncarnation() - before; (got == 1) != again {
					t.Errorf("%d more processes", got)
				}
			})
		})
	}
}

func TestAnInterruptEndsTheTurnAndThePrompt(t *testing.T) {
	for _, row := range []struct{ text, outcomes string }{
		{"hang", "hang:interrupted"}, // it reacts to it
		{"deaf", ""},
	} {
		withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
			p.prompt(t, id, row.text)
			pass(time.Second)
			p.ask(t, p.store.RequestInterrupt, id)
			_, _ = p.store.RequestInterrupt(context.Background(), id) // it may have reacted to the first one
			pass(time.Second)
			p.wantOutcomes(t, id, row.outcomes)
			if row.text == "deaf" {
				p.wantAgent(t, id, agentBusy)
				p.ask(t, p.store.RequestAgentStop, id)
				pass(time.Second)
				p.wantOutcomes(t, id, "deaf:interrupted")
			}
			if got := p.queue(t, id); got != "" {
				t.Errorf("%q waits", got)
			}
		})
	}
}

// TestOnlyATurnKeepsASandboxFromBeingIdle: an agent that waits for a prompt does not keep its sandbox active.
func TestOnlyATurnKeepsASandboxFromBeingIdle(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", nil)
		pass(5 * time.Second)
		p.prompt(t, "ada", "work 60000")
		pass(59 * time.Second)
		p.wantState(t, box, boxReady)
		pass(9 * time.Second)
		p.wantAgent(t, "ada", agentIdle)
		p.wantState(t, box, boxReady)
		pass(5 * time.Second)
		p.wantState(t, box, boxStopped)
		p.wantAgent(t, "ada", agentStopped)
		p.wantOutcomes(t, "ada", "work_60000:end_turn")
	}, func(c *controller.Config) { c.Settings.IdleTTL = 10 * time.Second })
}

func TestAnAgentOfASandboxThatFails(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "hang")
		pass(time.Second)
		p.engine.ExitContainer(p.container(0), 1, false)
		pass(time.Minute)
		p.wantState(t, box, agboxv1.SandboxState_SANDBOX_STATE_FAILED)
		p.wantAgent(t, id, agentFailed)
		p.wantOutcomes(t, id, "hang:interrupted")
		if got := p.queue(t, id); got != "hang" {
			t.Errorf("queue %q", got)
		}
	})
}

func TestAFreezeDuringAStartDoesNotShortenTheStartTimeout(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{Command: []string{"agent", "boot=8000"}, StartTimeout: durationpb.New(10 * time.Second)})
		pass(5 * time.Second)
		if _, err := p.store.RequestPause(context.Background(), box, "pause_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		p.wantAgent(t, "ada", agentStarting)
		if _, err := p.store.RequestResume(context.Background(), box); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p.wantTriggers(t, "ada", "SPAWN CONNECTED")
	})
}

// TestALateReportOfAnOldProcessChangesNothing: the output of the first process is never ingested for the second.
func TestALateReportOfAnOldProcessChangesNothing(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "crash-before 2")
		pass(5 * time.Second)
		p.wantAgent(t, id, agentIdle)
		p.prompt(t, id, "hang")
		pass(time.Second)
		before := p.agent(t, id)
		ctx := context.Background()
		from := &storev1.AgentPosition{Incarnation: 1}
		err := p.store.Ingest(ctx, id, 1, from, from, []store.AgentOutput{{Result: true}})
		if !errdefs.IsAborted(err) {
			t.Errorf("its output: %v", err)
		}
		_, err = p.store.TransitionAgent(ctx, id, store.Transition{Incarnation: 1, Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED})
		if !errdefs.IsAborted(err) {
			t.Errorf("its end: %v", err)
		}
		p.shim.tell(box, "ada.1") // its journal is touched
		p.shim.said.tell(box, "ada.1")
		pass(time.Minute)
		if after := p.agent(t, id); after.Status.GetVersion() != before.Status.GetVersion() {
			t.Errorf("%v became %v", before.Status, after.Status)
		}
	})
}

func TestAnAgentThatIsReadyWhenItsProcessIs(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{Ready: "process", Command: []string{"agent", "mute"}}, func(t *testing.T, p *player, _, id string) {
		p.wantTriggers(t, id, "SPAWN CONNECTED")
	})
}
