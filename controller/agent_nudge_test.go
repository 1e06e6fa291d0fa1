package controller_test

import (
	"context"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

// TestANudgeThatIsATurnOfItsOwnIsFinished: a program whose format has no nudges takes the nudge as its next prompt, or as a part of its
// turn. In both cases its process is ended once it has finished the nudge, and not before.
func TestANudgeThatIsATurnOfItsOwnIsFinished(t *testing.T) {
	for _, row := range []struct {
		name, text, outcomes string
		lives, ends          time.Duration // it is still alive at lives, and has ended at ends
	}{
		{"a turn of its own", "queues 3000", "queues_3000:end_turn :end_turn", 10 * time.Second, 17 * time.Second},
		{"a part of the turn", "work 3000", "work_3000:end_turn", 7 * time.Second, 10 * time.Second},
	} {
		spec := &agboxv1.AgentSpec{Format: dialect.Claude, Nudge: "work 8000"}
		for how, begin := range map[string]func(t *testing.T, p *player, box string){
			"drain": func(t *testing.T, p *player, _ string) { p.drain(t, store.DrainOptions{}) },
			"stop":  func(t *testing.T, p *player, box string) { p.stopBox(t, box) },
			"delete that keeps it": func(t *testing.T, p *player, box string) {
				if _, err := p.store.RequestDeleteKeepingAgents(context.Background(), box, "delete_requested"); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(row.name+", "+how, func(t *testing.T) {
				withAgent(t, spec, func(t *testing.T, p *player, box, id string) {
					p.prompt(t, id, row.text)
					pass(50 * time.Millisecond)
					p.wantAgent(t, id, agentBusy)
					begin(t, p, box)
					pass(row.lives)
					p.wantAgent(t, id, agentIdle)
					pass(row.ends - row.lives)
					p.wantAgent(t, id, agentStopped)
					p.wantOutcomes(t, id, row.outcomes)
				})
			})
		}
	}
}

// TestANudgeWithoutAnEndIsBounded: the turn that a nudge becomes gets no more time than any other.
func TestANudgeWithoutAnEndIsBounded(t *testing.T) {
	spec := &agboxv1.AgentSpec{Format: dialect.Claude, Nudge: "hang", SaveCommand: []string{"sleep", "1000", "0"}}
	withAgent(t, spec, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "queues 3000")
		pass(50 * time.Millisecond)
		p.stopBox(t, box)
		pass(18 * time.Second)
		p.wantAgent(t, id, agentIdle)
		pass(8 * time.Second)
		p.wantAgent(t, id, agentStopped)
		p.wantState(t, box, boxStopped)
		if got := p.agent(t, id).Status.GetSaved(); got != store.Saved {
			t.Errorf("its work is %q", got)
		}
	})
}

func TestUnpromptedOutputIsNotPartOfTheNextAnswer(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "say 1000")
		pass(3 * time.Second)
		p.wantAgent(t, id, agentIdle)
		p.prompt(t, id, "work 100")
		pass(time.Second)
		text := map[string]string{}
		var order []string
		for _, ev := range p.agentEvents(t, id) {
			if m := ev.GetMessage(); m != nil && ev.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED {
				order = append(order, m.GetMessageId())
			}
			if part := ev.GetPart(); part != nil {
				text[part.GetMessageId()] += part.GetText()
			}
		}
		var said []string
		for _, id := range order {
			said = append(said, text[id])
		}
		if got := strings.Join(said, "|"); got != "say 1000|answer|unasked|work 100|you said work 100" {
			t.Errorf("said %q", got)
		}
	})
}
