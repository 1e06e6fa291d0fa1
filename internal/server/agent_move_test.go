package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func (f *fixture) move(id, sandbox string) error {
	f.t.Helper()
	_, err := f.agents.MoveAgent(f.t.Context(), &agboxv1.MoveAgentRequest{AgentId: id, SandboxId: sandbox})
	return err
}

// newNamed records a sandbox with a name.
func (f *fixture) newNamed(id, name string) {
	f.t.Helper()
	_, err := f.CreateSandbox(f.t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, Name: name, CreateSpec: &agboxv1.CreateSpec{Image: "x"}})
	f.must(err)
}

func (f *fixture) wantPlace(id, sandbox, movesTo string) {
	f.t.Helper()
	if h := f.getAgent(id); h.GetSandboxId() != sandbox || h.GetMovesTo() != movesTo {
		f.t.Errorf("it is in %q and moves to %q, want %q and %q", h.GetSandboxId(), h.GetMovesTo(), sandbox, movesTo)
	}
}

func TestMoveAgentIsRecordedAndWithdrawn(t *testing.T) {
	f := newAgents(t)
	f.newNamed("other", "lab")
	_, err := f.createAgent("agent-1", "bot")
	f.must(err)
	for range 2 {
		f.must(f.move("agent-1", "lab"))
		f.wantPlace("agent-1", "boxx", "other")
	}
	f.must(f.move("agent-1", "work"))
	f.wantPlace("agent-1", "boxx", "")
	f.must(f.move("agent-1", "other"))
	f.must(f.store.MoveAgent(t.Context(), "agent-1", 0))
	f.wantPlace("agent-1", "other", "")
	if spec := f.getAgent("agent-1").GetSpec(); spec.GetSandboxId() != "other" {
		t.Errorf("its spec says %v", spec)
	}
}

func TestMovesAreRefused(t *testing.T) {
	f := newAgents(t)
	f.newNamed("other", "lab")
	_, err := f.createAgent("agent-1", "bot")
	f.must(err)
	refused(t, f.move("agent-1", ""), codes.InvalidArgument, "INVALID_SPEC", "sandbox_id is required", map[string]string{"field": "sandbox_id"})
	refused(t, f.move("agent-1", "nope"), codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox nope was not found", map[string]string{"sandbox_id": "nope"})
	refused(t, f.move("bot", "lab"), codes.NotFound, "AGENT_NOT_FOUND", "agent bot was not found", map[string]string{"agent_id": "bot"})
	_, err = f.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "other"})
	f.must(err)
	refused(t, f.move("agent-1", "other"), codes.FailedPrecondition, "AGENT_INVALID_STATE", "sandbox other is being deleted", map[string]string{"agent_id": "agent-1"})
	f.wantPlace("agent-1", "boxx", "")
}

func TestADeletedSandboxLeavesItsAgentsWhereThatIsAsked(t *testing.T) {
	f := newAgents(t)
	f.newNamed("other", "lab")
	for id, sandbox := range map[string]string{"stays": "work", "goes": "lab"} {
		_, err := f.createAgent(id, id, func(s *agboxv1.AgentSpec) { s.SandboxId = sandbox })
		f.must(err)
	}
	remove := func(id string, keep bool) {
		_, err := f.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: id, KeepAgents: keep})
		f.must(err)
	}
	remove("boxx", true)
	remove("boxx", false) // the first request counts
	remove("other", false)
	remove("other", true)
	if h := f.getAgent("goes"); h.GetDesiredState() != "deleted" || h.GetMovesTo() != "" {
		t.Errorf("of a plain delete: %v", h)
	}
	if h := f.getAgent("stays"); h.GetDesiredState() != "running" {
		t.Errorf("kept: %v", h)
	}
	f.wantPlace("stays", "boxx", "work")
	f.newNamed("next", "work")
	f.wantPlace("stays", "boxx", "next")
	f.must(f.store.MoveAgent(t.Context(), "stays", 0))
	f.wantPlace("stays", "next", "")
}

func TestADeletedSandboxLeavesAgentsThatMoveElsewhere(t *testing.T) {
	f := newAgents(t)
	f.newNamed("other", "lab")
	_, err := f.createAgent("agent-1", "bot")
	f.must(err)
	f.must(f.move("agent-1", "lab"))
	_, err = f.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "boxx"})
	f.must(err)
	if h := f.getAgent("agent-1"); h.GetDesiredState() != "running" || h.GetMovesTo() != "other" {
		t.Errorf("got %v", h)
	}
}

func TestOnlyTheAdoptedProcessIsReportedAsAdopted(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "bot")
	f.must(err)
	rung := func(want agboxv1.AgentRung) {
		t.Helper()
		if h := f.getAgent("agent-1"); h.GetRung() != want {
			t.Errorf("got %s, want %s", h.GetRung(), want)
		}
	}
	rung(agboxv1.AgentRung_AGENT_RUNG_UNSPECIFIED)
	f.startAgent("agent-1")
	rung(agboxv1.AgentRung_AGENT_RUNG_COLD)
	f.must(f.store.AdoptAgent(t.Context(), "agent-1", 1))
	rung(agboxv1.AgentRung_AGENT_RUNG_ADOPTED)
	f.trigger("agent-1", agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED, "exit code 3")
	f.startAgent("agent-1")
	rung(agboxv1.AgentRung_AGENT_RUNG_COLD)
}
