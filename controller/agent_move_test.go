package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/execid"
)

func (p *player) namedBox(t *testing.T, id, name string) {
	t.Helper()
	if _, err := p.store.CreateSandbox(context.Background(), id, name, &agboxv1.CreateSpec{Image: image}, nil); err != nil {
		t.Fatal(err)
	}
	p.boxes = append(p.boxes, id)
}

func (p *player) moveTo(box string) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, id string) (bool, error) { return p.store.RequestMove(ctx, id, box) }
}

// wantMoved fails unless an agent is IDLE in a sandbox and its process there received the earlier conversation.
func (p *player) wantMoved(t *testing.T, id, box, heard string) {
	t.Helper()
	p.wantAgent(t, id, agentIdle)
	if a := p.agent(t, id); a.SandboxID != box || a.Spec.GetSandboxId() != box {
		t.Fatalf("it is in %s, by its spec in %s; want %s", a.SandboxID, a.Spec.GetSandboxId(), box)
	}
	p.prompt(t, id, "what was it")
	pass(time.Second)
	p.wantGiven(t, "what was it", 1)
	first := p.shim.said.first(execid.ForAgent(id, p.agent(t, id).Status.GetIncarnation()))
	if !strings.Contains(first.text, "<agbox-context>") || !strings.Contains(first.text, heard) {
		t.Errorf("it was told %q", first.text)
	}
}

func TestAnAgentMovesWithItsPastAndItsQueue(t *testing.T) {
	for _, format := range []string{dialect.Native, dialect.Claude} {
		t.Run(format, func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{Format: format}, func(t *testing.T, p *player, _, id string) {
				p.prompt(t, id, "remember this")
				pass(time.Second)
				there := p.readyBox(t)
				p.prompt(t, id, "work 5000")
				p.prompt(t, id, "work 200")
				pass(50 * time.Millisecond)
				p.ask(t, p.moveTo(there), id)
				pass(4 * time.Second)
				p.wantAgent(t, id, agentBusy) // the move waits for its turn
				pass(4 * time.Second)
				p.wantMoved(t, id, there, "remember this")
				p.wantGiven(t, "work 5000", 1)
				p.wantGiven(t, "work 200", 1)
				p.wantOutcomes(t, id, "remember_this:end_turn work_5000:end_turn work_200:end_turn what_was_it:end_turn")
			})
		})
	}
}

func TestAMoveCanBeWithdrawn(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, here, id string) {
		there := p.readyBox(t)
		p.prompt(t, id, "work 5000")
		pass(50 * time.Millisecond)
		p.ask(t, p.moveTo(there), id)
		pass(time.Second)
		p.ask(t, p.moveTo(here), id)
		pass(10 * time.Second)
		p.wantAgent(t, id, agentIdle)
		p.wantTriggers(t, id, "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED")
	})
}

func TestAMoveOfAnAgentInEachState(t *testing.T) {
	for _, state := range agentStates {
		t.Run(state.String(), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				agentIn(t, p, state)
				if state == agentPending {
					p.undrain(t)
				}
				there := p.readyBox(t)
				p.ask(t, p.moveTo(there), "ada")
				if state == agentBusy {
					p.ask(t, p.store.RequestInterrupt, "ada")
				}
				pass(40 * time.Second)
				want := agentIdle
				if state == agentStopped { // it had ended on its own
					want = agentStopped
				}
				p.wantAgent(t, "ada", want)
				if a := p.agent(t, "ada"); a.SandboxID != there {
					t.Errorf("it is in %s", a.SandboxID)
				}
			})
		})
	}
}

// TestAnAgentOutlivesItsSandbox: it continues in the next sandbox of the same name, at any time that one is created, in any state, and also
// if its container was removed.
func TestAnAgentOutlivesItsSandbox(t *testing.T) {
	for _, row := range []struct {
		name, text string
		spoil      bool
		at         time.Duration // the time from the delete to the creation of the new one
	}{
		{"idle", "", false, 10 * time.Second},
		{"the name is taken at once", "", false, 0},
		{"in a turn that ends", "work 5000", false, 10 * time.Second},
		{"in a turn that ends, the name is taken at once", "work 5000", false, 0},
		{"in a turn without an end", "hang", false, 70 * time.Second},
		{"its container is gone", "", true, 10 * time.Second},
		{"its container is gone, in a turn", "crash-before 2 60000", true, 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				p.namedBox(t, "old", "home")
				pass(time.Second)
				p.newAgent(t, "old", "ada", nil)
				pass(time.Second)
				p.prompt(t, "ada", "remember this")
				pass(time.Second)
				if row.text != "" {
					p.prompt(t, "ada", row.text)
					pass(50 * time.Millisecond)
				}
				if row.spoil {
					p.must(t, act{"remove box", 0})
					pass(2 * time.Second)
					p.wantState(t, "old", agboxv1.SandboxState_SANDBOX_STATE_FAILED)
				}
				if _, err := p.store.RequestDeleteKeepingAgents(context.Background(), "old", "delete_requested"); err != nil {
					t.Fatal(err)
				}
				pass(row.at)
				p.namedBox(t, "new", "home")
				if row.text == "hang" {
					pass(2 * time.Second)
					p.wantState(t, "old", boxDeleted)
					p.ask(t, p.store.RequestInterrupt, "ada") // its prompt was redelivered there
				}
				pass(15 * time.Second)
				p.wantState(t, "old", boxDeleted)
				p.wantMoved(t, "ada", "new", "remember this")
			})
		})
	}
}

func TestAnAgentWithoutASandboxKeepsWhatItHas(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "remember this")
		pass(time.Second)
		if _, err := p.store.RequestDeleteKeepingAgents(context.Background(), box, "delete_requested"); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p.wantState(t, box, boxDeleted)
		p.prompt(t, id, "asked without a sandbox")
		for range 2 {
			p.wantAgent(t, id, agentStopped)
			if line, unverified := p.daemon.AgentStatus(id); unverified || !strings.Contains(line, "agbox agent move") {
				t.Errorf("%q, unverified %v", line, unverified)
			}
			if err := p.restart(-1); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		there := p.readyBox(t)
		p.ask(t, p.moveTo(there), id)
		pass(2 * time.Second)
		p.wantOutcomes(t, id, "remember_this:end_turn asked_without_a_sandbox:end_turn")
		p.ask(t, p.store.RequestAgentDelete, id)
		pass(2 * time.Second)
		if got := p.store.LiveAgentIDs(); len(got) != 0 {
			t.Errorf("%v are left", got)
		}
	})
}

func TestALivingProcessIsAdoptedOnce(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
		if n := p.agent(t, id).Status.GetAdoptedIncarnation(); n != 0 {
			t.Errorf("adopted as %d by its own daemon", n)
		}
		var version uint64
		for range 2 {
			if err := p.restart(-1); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			a := p.agent(t, id)
			if n := a.Status.GetAdoptedIncarnation(); n != 1 || version != 0 && a.Status.GetVersion() != version {
				t.Errorf("adopted as %d, version %d after %d", n, a.Status.GetVersion(), version)
			}
			version = a.Status.GetVersion()
		}
		p.prompt(t, id, "hello")
		pass(time.Second)
		p.wantOutcomes(t, id, "hello:end_turn")
	})
}
