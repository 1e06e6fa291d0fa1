package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func (p *player) explainAgent(t *testing.T, id string) *agboxv1.ExplainResponse {
	t.Helper()
	e, err := p.daemon.ExplainAgent(context.Background(), id)
	if err != nil {
		t.Fatalf("explain agent %s: %v", id, err)
	}
	return e
}

func TestExplainOfAConvergedAgent(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		e := p.explainAgent(t, id)
		wantQuiet(t, e)
		if e.GetDesired() != "run" || e.GetAgentState() != "IDLE" || e.GetState() != 0 || len(e.GetDeadlines()) > 0 {
			t.Errorf("explained as %v", e)
		}
		for _, line := range []string{"sandbox " + box + ": READY", "process ada.1: alive", "output: all "} {
			wantLine(t, "observed", e.GetObserved(), line)
		}
		if _, err := p.daemon.ExplainAgent(t.Context(), "nobody"); !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// TestExplainOfAWaitingAgent has a row for each reason why nothing happens, or not yet.
func TestExplainOfAWaitingAgent(t *testing.T) {
	for _, row := range []struct {
		name                              string
		spec                              *agboxv1.AgentSpec
		happens                           func(t *testing.T, p *player, box string)
		waiting, observed, differs, state string
		deadline, action                  string
		left                              time.Duration
	}{
		{name: "its sandbox is paused", happens: func(t *testing.T, p *player, box string) {
			if _, err := p.store.RequestPause(t.Context(), box, "pause_requested"); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			p.prompt(t, "ada", "later")
			pass(time.Second)
		}, state: "IDLE", waiting: "its sandbox is PAUSED", observed: "queue: 1 prompt", differs: "1 prompt not given"},
		{name: "not ready yet", spec: &agboxv1.AgentSpec{Command: []string{"agent", "boot=30000"}}, state: "STARTING",
			waiting: "waiting for it to be ready", differs: "the state is STARTING, not IDLE or BUSY", deadline: "start_timeout", action: "fail", left: 58 * time.Second},
		{name: "a back-off", spec: &agboxv1.AgentSpec{Command: []string{"agent", "die=7"}}, state: "FAILED",
			waiting: "it is started again in ", observed: "process ada.2: ended with exit code 7", deadline: "back-off", action: "start"},
		{name: "gave up", spec: &agboxv1.AgentSpec{Command: []string{"agent", "die=7"}}, happens: func(*testing.T, *player, string) { pass(time.Hour) },
			state: "FAILED", waiting: "it failed to start 5 times in a row", differs: "it needs attention: its process ended with code 7"},
		{name: "its policy starts nothing", spec: &agboxv1.AgentSpec{Command: []string{"agent", "die=1"}, RestartPolicy: "never"},
			state: "FAILED", waiting: "its process has ended, and its restart_policy (never) does not start it again"},
		{name: "a drain", happens: func(t *testing.T, p *player, _ string) { p.drain(t, drainFor(time.Minute)); pass(time.Second) },
			state: "STOPPED", waiting: "draining; it restarts after the drain", observed: "the daemon drains"},
		{name: "a turn that its sandbox waits for", happens: func(t *testing.T, p *player, box string) {
			p.prompt(t, "ada", "hang")
			pass(time.Second)
			p.stopBox(t, box)
			pass(10 * time.Second)
		}, state: "BUSY", waiting: "its sandbox stops once it has finished, or soon", observed: "turn: of prompt hang", deadline: "turn", action: "end", left: 10 * time.Second},
		{name: "its sandbox is deleted", happens: func(t *testing.T, p *player, box string) {
			if _, err := p.store.RequestDeleteKeepingAgents(t.Context(), box, "delete_requested"); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
		}, state: "STOPPED", waiting: "its sandbox is deleted", observed: "sandbox box-0: DELETED"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				box := p.readyBox(t)
				p.newAgent(t, box, "ada", row.spec)
				pass(2 * time.Second)
				if row.happens != nil {
					row.happens(t, p, box)
				}
				e := p.explainAgent(t, "ada")
				if e.GetAgentState() != row.state || !strings.HasPrefix(e.GetWaiting(), row.waiting) || len(e.GetNextSteps()) > 0 {
					t.Errorf("explained as %v", e)
				}
				if row.observed != "" {
					wantLine(t, "observed", e.GetObserved(), row.observed)
				}
				if row.differs != "" {
					wantLine(t, "differences", e.GetDifferences(), row.differs)
				}
				if row.deadline == "" {
					if len(e.GetDeadlines()) > 0 {
						t.Errorf("deadlines %v", e.GetDeadlines())
					}
				} else if row.left > 0 {
					wantDeadline(t, e, row.deadline, row.action, time.Now().Add(row.left))
				} else if d := e.GetDeadlines(); len(d) != 1 || d[0].GetKind() != row.deadline || d[0].GetAction() != row.action {
					t.Errorf("deadlines %v", d)
				}
			})
		})
	}
}

func TestTheNextStepOfAnAgentIsExplained(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
		if err := p.restart(0); err != nil { // this daemon has no side effects any more
			t.Fatal(err)
		}
		p.prompt(t, id, "hello")
		pass(time.Second)
		e := p.explainAgent(t, id)
		wantLine(t, "next", e.GetNextSteps(), "adopt (that its process was found alive is recorded)")
		p.ask(t, p.store.RequestAgentDelete, id)
		e = p.explainAgent(t, id)
		wantLine(t, "next", e.GetNextSteps(), "end (the process is cancelled)")
		wantLine(t, "differences", e.GetDifferences(), "it is still there")
		if e.GetDesired() != "delete" {
			t.Errorf("explained as %v", e)
		}
	})
}

// TestExplainingAnAgentLeavesNoTrace: not even when a helper command, which a pass would settle, has just ended.
func TestExplainingAnAgentLeavesNoTrace(t *testing.T) {
	spec := &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "5000", "0"}}
	withAgent(t, spec, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "deaf")
		pass(time.Second)
		p.stopBox(t, box)
		pass(22 * time.Second)
		if line, _ := p.daemon.AgentStatus(id); line != "saving its work" {
			t.Fatalf("%q; %s", line, p.triggers(t, id))
		}
		if err := p.restart(0); err != nil { // its writes to files and to the store fail
			t.Fatal(err)
		}
		before := p.agent(t, id)
		for range 3 {
			pass(10 * time.Second)
			if e := p.explainAgent(t, id); strings.HasPrefix(e.GetWaiting(), "no verdict") {
				t.Errorf("it takes a write: %v", e)
			}
		}
		if after := p.agent(t, id); after.Status.GetVersion() != before.Status.GetVersion() {
			t.Errorf("was %v, is %v", before.Status, after.Status)
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if got := p.agent(t, id).Status.GetSaved(); got != "saved" {
			t.Errorf("its work is %q", got)
		}
	})
}
