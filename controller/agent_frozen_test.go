package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestAStopOfAFrozenAgentSaysWhenItEnds: its process cannot end before its sandbox is resumed; then it ends.
func TestAStopOfAFrozenAgentSaysWhenItEnds(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		if _, err := p.store.RequestPause(t.Context(), box, "pause_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.wantState(t, box, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
		p.ask(t, p.store.RequestAgentStop, id)
		pass(time.Minute)
		p.wantAgent(t, id, agentIdle)
		const why = "its process ends when its sandbox is resumed"
		if line, _ := p.daemon.AgentStatus(id); line != why {
			t.Errorf("it says %q", line)
		}
		if e := p.explainAgent(t, id); e.GetWaiting() != why || e.GetDesired() != "stop" {
			t.Errorf("explained as %v", e)
		}
		if _, err := p.store.RequestResume(t.Context(), box); err != nil {
			t.Fatal(err)
		}
		pass(15 * time.Second)
		p.wantAgent(t, id, agentStopped)
		p.wantTriggers(t, id, "SPAWN CONNECTED USER_TERMINATED")
	})
}
