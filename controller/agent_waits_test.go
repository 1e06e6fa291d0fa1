package controller_test

import (
	"testing"
	"time"
)

func TestAnAgentSaysThatItsSandboxIsAboutToStop(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		p.newAgent(t, box, "busy", nil)
		pass(time.Second)
		p.prompt(t, "busy", "deaf")
		pass(50 * time.Millisecond)
		p.stopBox(t, box)
		pass(5 * time.Second)
		p.wantAgent(t, id, agentStopped)
		if line, _ := p.daemon.AgentStatus(id); line != "its sandbox is about to stop" {
			t.Errorf("%q", line)
		}
		pass(30 * time.Second)
		p.wantState(t, box, boxStopped)
		if line, _ := p.daemon.AgentStatus(id); line != "its sandbox is STOPPED" {
			t.Errorf("%q", line)
		}
	})
}
