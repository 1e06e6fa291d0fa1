package store

import (
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// moveIn returns a store with two sandboxes: "box" with an IDLE agent that has a conversation, and "there".
func moveIn(t *testing.T) *Store {
	t.Helper()
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeReady(t, s, "there")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	trigger(t, s, "agent", resulted)
	prompt(t, s, "agent", "p-2")
	return s
}

// parkAgent ends the process of the agent and marks the agent for restart.
func parkAgent(t *testing.T, s *Store) {
	t.Helper()
	endExec(t, s, "agent.1")
	_, err := s.TransitionAgent(ctx, "agent", Transition{Incarnation: 1, Trigger: parked, Parked: true})
	must(t, err)
}

func wantHome(t *testing.T, s *Store, box string) {
	t.Helper()
	a := agent1(t, s, "agent")
	if a.SandboxID != box || a.Spec.GetSandboxId() != box || a.Desired.GetSandboxId() != box {
		t.Fatalf("it is in %s, by its spec in %s, by its intent in %s; want %s", a.SandboxID, a.Spec.GetSandboxId(), a.Desired.GetSandboxId(), box)
	}
	for _, one := range []string{"box", "there"} {
		if got := slices.Contains(s.AgentsOf(one), "agent"); got != (one == box) {
			t.Fatalf("%s has it: %v", one, got)
		}
	}
}

func TestAMovedAgentKeepsAllButItsProcess(t *testing.T) {
	s := moveIn(t)
	changed, err := s.RequestMove(ctx, "agent", "there")
	must(t, err)
	if again, err := s.RequestMove(ctx, "agent", "there"); !changed || again || err != nil {
		t.Errorf("changed %v, then %v, %v", changed, again, err)
	}
	if err := s.MoveAgent(ctx, "agent", 0); !errdefs.IsAborted(err) {
		t.Errorf("moved with a process: %v", err)
	}
	parkAgent(t, s)
	if err := s.MoveAgent(ctx, "agent", 1); !errdefs.IsAborted(err) {
		t.Errorf("moved on an older version: %v", err)
	}
	before := kinds(agentEvents(t, s, "agent"))
	must(t, s.MoveAgent(ctx, "agent", agent1(t, s, "agent").Status.GetVersion()))
	for range 2 {
		wantHome(t, s, "there")
		a := agent1(t, s, "agent")
		if a.Desired.GetMoveTo() != "" || a.Queued != 1 || !a.Status.GetParked() || a.Status.GetSessionId() != "" || s.Destination("agent") != "" {
			t.Errorf("%+v", a)
		}
		events := agentEvents(t, s, "agent")
		if got := kinds(events); !slices.Equal(got[:len(before)], before) || len(got) != len(before)+1 {
			t.Errorf("events\n%v, were\n%v", got, before)
		}
		if m := events[len(events)-1].GetMove(); m.GetFromSandboxId() != "box" || m.GetToSandboxId() != "there" {
			t.Errorf("told as %v", m)
		}
		must(t, s.Close())
		checkDatabase(t, s.o.Path)
		s = open(t, s.o)
	}
	spawn(t, s, "agent")
	if sb, err := s.Sandbox(ctx, "there"); err != nil || !slices.Equal(sb.ActiveExecs, []string{"agent.2"}) {
		t.Errorf("execs there: %v, %v", sb.ActiveExecs, err)
	}
	if err := s.MoveAgent(ctx, "agent", 0); !errdefs.IsAborted(err) {
		t.Errorf("moved to nowhere: %v", err)
	}
}

func TestMovesThatAreRefused(t *testing.T) {
	s := moveIn(t)
	makeReady(t, s, "full")
	for i := range maxAgents {
		_, err := s.CreateAgent(ctx, "x-"+string(rune('a'+i/100))+string(rune('a'+i/10%10))+string(rune('a'+i%10)), "", agentSpec("full"))
		must(t, err)
	}
	makeReady(t, s, "leaving")
	_, err := s.RequestDelete(ctx, "leaving", "delete_requested")
	must(t, err)
	for box, want := range map[string]string{"full": "AGENTS_FULL", "nowhere": "SANDBOX_NOT_FOUND", "leaving": "AGENT_INVALID_STATE"} {
		if changed, err := s.RequestMove(ctx, "agent", box); changed || reasonOf(err) != want {
			t.Errorf("to %s: %v, %v; want %s", box, changed, err, want)
		}
	}
	if _, err := s.RequestMove(ctx, "nobody", "there"); reasonOf(err) != "AGENT_NOT_FOUND" {
		t.Errorf("nobody: %v", err)
	}
	if changed, err := s.RequestMove(ctx, "agent", "box"); changed || err != nil {
		t.Errorf("to where it is: %v, %v", changed, err)
	}
	_, err = s.RequestMove(ctx, "agent", "there")
	must(t, err)
	_, err = s.RequestDelete(ctx, "there", "delete_requested")
	must(t, err)
	if to := s.Destination("agent"); to != "" {
		t.Errorf("it is to move to %s, which goes", to)
	}
	_, err = s.RequestAgentDelete(ctx, "agent")
	must(t, err)
	if _, err := s.RequestMove(ctx, "agent", "full"); reasonOf(err) != "AGENT_INVALID_STATE" {
		t.Errorf("a deleted one: %v", err)
	}
}

// TestAnAgentWaitsForTheNextSandboxOfTheName: a delete that keeps the agent waits only for its process, and the create of the next sandbox
// of that name enqueues the agent.
func TestAnAgentWaitsForTheNextSandboxOfTheName(t *testing.T) {
	s := open(t, testOptions(t))
	_, err := s.CreateSandbox(ctx, "box", "home", spec(), nil)
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	_, err = s.CreateAgent(ctx, "agent", "ada", agentSpec("box"))
	must(t, err)
	makeIdle(t, s, "agent")
	_, err = s.RequestDeleteKeepingAgents(ctx, "box", "delete_requested")
	must(t, err)
	if n, err := s.Leaving(ctx, "box"); n != 1 || err != nil {
		t.Errorf("%d are leaving, %v", n, err)
	}
	gone := Report{Generation: 2, Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETED, deleted)}}
	parkable := func() {
		if err := s.Report(ctx, "box", gone); !errdefs.IsFailedPrecondition(err) {
			t.Fatalf("deleted with a process: %v", err)
		}
	}
	parkable()
	endExec(t, s, "agent.1")
	parkable()
	_, err = s.TransitionAgent(ctx, "agent", Transition{Incarnation: 1, Trigger: parked, Parked: true})
	must(t, err)
	must(t, s.Report(ctx, "box", gone))
	must(t, s.Close())
	s = open(t, s.o)
	if a, err := s.AgentByName(ctx, "ada"); err != nil || a.SandboxID != "box" || s.Destination("agent") != "" {
		t.Fatalf("%+v, %v; it is to move to %q", a, err, s.Destination("agent"))
	}
	woken := make(chan string, 16)
	s.OnCommit(func(c Change) { woken <- c.AgentID })
	_, err = s.CreateSandbox(ctx, "new", "home", spec(), nil)
	must(t, err)
	if id := <-woken; id != "agent" || s.Destination("agent") != "new" {
		t.Errorf("%s was told, it is to move to %q", id, s.Destination("agent"))
	}
	must(t, s.MoveAgent(ctx, "agent", 0))
	if a := agent1(t, s, "agent"); a.SandboxID != "new" || a.Desired.GetHome() != "" || !slices.Equal(s.AgentsOf("new"), []string{"agent"}) {
		t.Errorf("%+v", a)
	}
}
