package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect"
)

// TestATurnGetsItsDataAfterAPartOfItsPastWasDropped: the inbox holds a past of which a part was dropped meanwhile; data after it is still written at
// the right offset, also by another daemon.
func TestATurnGetsItsDataAfterAPartOfItsPastWasDropped(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, box, id string) {
		for _, text := range []string{"one", "two", "three"} {
			p.prompt(t, id, text)
			pass(time.Second)
		}
		p.ask(t, p.store.RequestAgentStop, id)
		pass(time.Second)
		p.ask(t, p.store.RequestAgentRun, id)
		p.prompt(t, id, "flood 5000")
		pass(5 * time.Second)
		p.wantAgent(t, id, agentBusy)
		if p.agent(t, id).Status.GetTruncatedThrough() == 0 {
			t.Fatal("nothing was dropped")
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if line, unverified := p.daemon.AgentStatus(id); line != "" || unverified {
			t.Errorf("%q, unverified %v", line, unverified)
		}
		p.ask(t, p.store.RequestInterrupt, id)
		pass(time.Second)
		p.wantAgent(t, id, agentIdle)
		p.wantGiven(t, "flood 5000", 1)
	})
}

// TestASessionThatCanNotBeResumedIsGivenUp: the next process of a program that dies on a resume, without a message, receives its past
// instead.
func TestASessionThatCanNotBeResumedIsGivenUp(t *testing.T) {
	spec := &agboxv1.AgentSpec{Format: dialect.Claude, Command: []string{"agent", "forgets"}}
	withAgent(t, spec, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "remember this")
		pass(time.Second)
		p.stopBox(t, box)
		pass(5 * time.Second)
		p.must(t, act{"resume", 0})
		pass(5 * time.Second)
		p.wantMoved(t, id, box, "remember this")
		p.wantTriggers(t, id, "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED SPAWN PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED")
	})
}
