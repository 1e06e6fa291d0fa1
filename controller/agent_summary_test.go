package controller_test

import (
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestASummaryReplacesTheOlderTurns: the older turns pass through the spec's command before the first prompt of another process.
func TestASummaryReplacesTheOlderTurns(t *testing.T) {
	for _, row := range []struct {
		name    string
		command []string
		within  time.Duration
		want    string
	}{
		{"that is made in time", []string{"summarize", "3000"}, 4 * time.Second, "in short: 4 lines"},
		{"that takes too long", []string{"summarize", "60000"}, 31 * time.Second, "assistant: you said turn 1"},
		{"that fails", []string{"sleep", "500", "1"}, 2 * time.Second, "assistant: you said turn 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			spec := &agboxv1.AgentSpec{Context: &agboxv1.AgentContextPolicy{MaxTurns: 2, SummaryCommand: row.command}}
			withAgent(t, spec, func(t *testing.T, p *player, _, id string) {
				for _, text := range []string{"turn 1", "turn 2", "turn 3"} {
					p.prompt(t, id, text)
				}
				pass(2 * time.Second)
				p.ask(t, p.store.RequestAgentStop, id)
				pass(2 * time.Second)
				p.ask(t, p.store.RequestAgentRun, id)
				pass(2 * time.Second)
				p.prompt(t, id, "what did I say")
				pass(row.within - 1500*time.Millisecond)
				if len(p.shim.said.prompts("what_did_I_say")) > 0 && row.within > 2*time.Second {
					t.Error("the prompt did not wait for it")
				}
				pass(1500 * time.Millisecond)
				list := p.wantGiven(t, "what did I say", 1)
				if !strings.Contains(list[0].text, row.want) || !strings.Contains(list[0].text, "turn 3") {
					t.Errorf("it was told %s", list[0].text)
				}
				p.prompt(t, id, "again")
				pass(time.Second)
				if list := p.wantGiven(t, "again", 1); list[0].text != "again" {
					t.Errorf("and then %q", list[0].text)
				}
			})
		})
	}
}

// TestARedeliveryContainsTheSameSummary: a redelivery contains the claimed summary, even if the command would now give another one.
func TestARedeliveryContainsTheSameSummary(t *testing.T) {
	spec := &agboxv1.AgentSpec{Context: &agboxv1.AgentContextPolicy{MaxTurns: 1, SummaryCommand: []string{"summarize", "100"}}}
	withAgent(t, spec, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "turn 1")
		pass(time.Second)
		p.ask(t, p.store.RequestAgentStop, id)
		pass(time.Second)
		p.ask(t, p.store.RequestAgentRun, id)
		pass(time.Second)
		for fuse := range 30 { // killed at each of its next steps
			if err := p.restart(fuse); err != nil {
				t.Fatal(err)
			}
			if fuse == 0 {
				p.prompt(t, id, "work 1000000")
			}
			pass(2 * time.Second)
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p.wantAgent(t, id, agentBusy)
		list := p.wantGiven(t, "work 1000000", 1)
		if !strings.Contains(list[0].text, "in short: 1 lines") {
			t.Errorf("it was told %q", list[0].text)
		}
		if line, _ := p.daemon.AgentStatus(id); line != "" {
			t.Error(line)
		}
	})
}
