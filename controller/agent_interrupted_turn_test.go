package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestAnInterruptedPromptIsRedeliveredToAnotherProcess: the drain that interrupted a turn to save its work is undone before it ends the process.
// The prompt is redelivered to another process.
func TestAnInterruptedPromptIsRedeliveredToAnotherProcess(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{}, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "hang")
		pass(50 * time.Millisecond)
		p.ask(t, p.store.RequestInterruptToSave, id)
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		p.wantAgent(t, id, agentBusy)
		list := p.wantGiven(t, "hang", 2)
		if list[0].execID == list[1].execID {
			t.Errorf("%s was told twice", list[0].execID)
		}
		if a := p.agent(t, id); a.Status.GetAttempts() != 1 {
			t.Errorf("%v", a.Status)
		}
	})
}
