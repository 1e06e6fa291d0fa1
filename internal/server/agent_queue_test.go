package server_test

import (
	"fmt"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestTheQueueOfAnAgentIsShown: the first prompts, in order and cut; not in a list.
func TestTheQueueOfAnAgentIsShown(t *testing.T) {
	f := newAgents(t)
	_, err := f.createAgent("agent-1", "bot")
	f.must(err)
	for i := range 25 {
		_, err := f.agents.PromptAgent(t.Context(), &agboxv1.PromptAgentRequest{
			AgentId: "agent-1", PromptId: fmt.Sprintf("prompt-%02d", i), Text: strings.Repeat("\u00e9", 100+20*i),
		})
		f.must(err)
	}
	got := f.getAgent("agent-1")
	if got.GetQueuedPrompts() != 25 || len(got.GetQueue()) != 20 {
		t.Fatalf("%d queued, %d shown", got.GetQueuedPrompts(), len(got.GetQueue()))
	}
	for i, p := range got.GetQueue() {
		if want := strings.Repeat("\u00e9", min(100+20*i, 200)); p.GetPromptId() != fmt.Sprintf("prompt-%02d", i) || p.GetText() != want || p.GetQueuedAt() == nil ||
			p.GetHeld() || p.GetGiven() != 0 {
			t.Errorf("prompt %d is shown as %v", i, p)
		}
	}
	resp, err := f.agents.ListAgents(t.Context(), &agboxv1.ListAgentsRequest{})
	f.must(err)
	if q := resp.GetAgents()[0].GetQueue(); len(q) != 0 {
		t.Errorf("a list shows %v", q)
	}
}
