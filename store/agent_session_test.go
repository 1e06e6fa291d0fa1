package store

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// A process that receives its context with its first prompt has a session worth resuming from then on.
func TestASessionWithoutThePastIsNotResumed(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	ingest(t, s, "agent", AgentOutput{SessionID: "one"})
	trigger(t, s, "agent", crashed)
	tr := spawning(agent1(t, s, "agent"))
	tr.Rung = agboxv1.AgentRung_AGENT_RUNG_CONTEXT
	_, err := s.TransitionAgent(ctx, "agent", tr)
	must(t, err)
	ingest(t, s, "agent", AgentOutput{Ready: true}, AgentOutput{SessionID: "two"})
	if got := agent1(t, s, "agent").Status.GetSessionId(); got != "one" {
		t.Errorf("before its first prompt the session is %q", got)
	}
	claim(t, s, "agent")
	ingest(t, s, "agent", AgentOutput{SessionID: "two"})
	if got := agent1(t, s, "agent").Status.GetSessionId(); got != "two" {
		t.Errorf("in its first turn the session is %q", got)
	}
}
