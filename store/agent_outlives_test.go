package store

import (
	"testing"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// named creates a READY sandbox with a name.
func named(t testing.TB, s *Store, id, name string) {
	t.Helper()
	_, err := s.CreateSandbox(ctx, id, name, spec(), nil)
	must(t, err)
	report(t, s, id, phase(agboxv1.EventType_SANDBOX_READY, ready))
}

// TestAnAgentOutlivesItsSandbox closes, checks and reopens the file at each stage.
func TestAnAgentOutlivesItsSandbox(t *testing.T) {
	o := testOptions(t)
	s, err := Open(ctx, o)
	must(t, err)
	again := func(stage string) {
		t.Helper()
		must(t, s.Close())
		for _, found := range findings(t, o.Path) {
			t.Errorf("%s: %s", stage, found)
		}
		s, err = Open(ctx, o)
		must(t, err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	named(t, s, "old", "web")
	_, err = s.CreateAgent(ctx, "ada", "ada", agentSpec("old"))
	must(t, err)
	makeIdle(t, s, "ada")
	makeBusy(t, s, "ada", "p-1")
	prompt(t, s, "ada", "p-2")
	_, err = s.RequestDeleteKeepingAgents(ctx, "old", "delete_requested")
	must(t, err)
	again("to be deleted")
	endExec(t, s, "ada.1")
	trigger(t, s, "ada", parked)
	from, err := s.AgentPosition(ctx, "ada")
	must(t, err)
	must(t, s.Ingest(ctx, "ada", 1, from, &storev1.AgentPosition{Incarnation: 1, Ended: true}, nil))
	if n, err := s.Leaving(ctx, "old"); err != nil || n != 0 {
		t.Errorf("%d leave: %v", n, err)
	}
	report(t, s, "old", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
	again("deleted")
	must(t, s.PurgeSandbox(ctx, "old"))
	again("purged")
	if err := s.MoveAgent(ctx, "ada", 0); !errdefs.IsAborted(err) {
		t.Errorf("moved to nowhere: %v", err)
	}
	before := agentEvents(t, s, "ada")
	named(t, s, "new", "web")
	must(t, s.MoveAgent(ctx, "ada", 0))
	again("moved")
	a := agent1(t, s, "ada")
	if a.SandboxID != "new" || a.Spec.GetSandboxId() != "new" || a.Desired.GetHome() != "" || a.Queued != 2 || s.Destination("ada") != "" {
		t.Errorf("got %+v", a)
	}
	if after := agentEvents(t, s, "ada"); len(after) != len(before)+1 || after[len(before)].GetMove().GetToSandboxId() != "new" {
		t.Errorf("its events: %v", after)
	}
	makeIdle(t, s, "ada")
	again("up again")
}

func TestAHomelessAgentCanBeDeleted(t *testing.T) {
	s := open(t, testOptions(t))
	named(t, s, "old", "web")
	_, err := s.CreateAgent(ctx, "ada", "ada", agentSpec("old"))
	must(t, err)
	_, err = s.RequestDeleteKeepingAgents(ctx, "old", "delete_requested")
	must(t, err)
	report(t, s, "old", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
	must(t, s.PurgeSandbox(ctx, "old"))
	_, err = s.RequestAgentDelete(ctx, "ada")
	must(t, err)
	must(t, s.RemoveAgent(ctx, "ada"))
	if _, err := s.Agent(ctx, "ada"); !errdefs.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
}

func TestADeleteLeavesAgentsThatMoveElsewhere(t *testing.T) {
	s := open(t, testOptions(t))
	named(t, s, "old", "web")
	named(t, s, "lab", "lab")
	for _, id := range []string{"moves", "stays"} {
		_, err := s.CreateAgent(ctx, id, id, agentSpec("old"))
		must(t, err)
		makeIdle(t, s, id)
	}
	_, err := s.RequestMove(ctx, "moves", "lab")
	must(t, err)
	_, err = s.RequestDelete(ctx, "old", "delete_requested")
	must(t, err)
	for id, want := range map[string]storev1.AgentRun{"moves": storev1.AgentRun_AGENT_RUN_RUN, "stays": storev1.AgentRun_AGENT_RUN_DELETE} {
		if got := agent1(t, s, id).Desired.GetRun(); got != want {
			t.Errorf("%s is wanted %s", id, got)
		}
	}
	_, err = s.RequestDelete(ctx, "lab", "delete_requested")
	must(t, err)
	if d := agent1(t, s, "moves").Desired; d.GetRun() != storev1.AgentRun_AGENT_RUN_RUN || d.GetHome() != "web" || s.Destination("moves") != "" {
		t.Errorf("its destination is deleted too: %v", d)
	}
}
