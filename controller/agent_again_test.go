package controller_test

import (
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

// TestARedeliveredPromptSaysSo: on every rung. The first delivery does not.
func TestARedeliveredPromptSaysSo(t *testing.T) {
	for _, row := range []struct {
		name string
		spec *agboxv1.AgentSpec
		rung agboxv1.AgentRung
	}{
		{"cold", &agboxv1.AgentSpec{Context: &agboxv1.AgentContextPolicy{Mode: "none"}}, agboxv1.AgentRung_AGENT_RUNG_COLD},
		{"context", &agboxv1.AgentSpec{}, agboxv1.AgentRung_AGENT_RUNG_CONTEXT},
		{"native", &agboxv1.AgentSpec{Format: dialect.Claude}, agboxv1.AgentRung_AGENT_RUNG_NATIVE},
	} {
		t.Run(row.name, func(t *testing.T) {
			withAgent(t, row.spec, func(t *testing.T, p *player, _, id string) {
				p.prompt(t, id, "work 10") // some programs have a session to resume only after a turn
				pass(2 * time.Second)
				p.prompt(t, id, "crash-before 2 100")
				pass(20 * time.Second)
				p.prompt(t, id, "work 100")
				pass(2 * time.Second)
				p.wantAgent(t, id, agentIdle)
				if a := p.agent(t, id); a.Status.GetRung() != row.rung {
					t.Fatalf("it is on the rung %v", a.Status.GetRung())
				}
				list := append(p.wantGiven(t, "crash-before 2 100", 2), p.wantGiven(t, "work 100", 1)...)
				for i, want := range []bool{false, true, false} {
					if got := strings.Contains(list[i].text, "<agbox-interrupted>"); got != want {
						t.Errorf("delivery %d: %q", i+1, list[i].text)
					}
				}
			})
		})
	}
}

// TestTheDefaultNudgeEndsATurnEarly: the turn ends before the drain or the stop would cut it off, so its prompt is not given again.
func TestTheDefaultNudgeEndsATurnEarly(t *testing.T) {
	for how, row := range map[string]struct {
		begin, end func(t *testing.T, p *player, box string)
	}{
		"drain": {
			func(t *testing.T, p *player, _ string) { p.drain(t, store.DrainOptions{}) },
			func(t *testing.T, p *player, _ string) { p.undrain(t) },
		},
		"stop": {
			func(t *testing.T, p *player, box string) { p.stopBox(t, box) },
			func(t *testing.T, p *player, box string) {
				if _, err := p.store.RequestResume(t.Context(), box); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		for _, nudge := range []string{"", "none"} {
			t.Run(how+", nudge "+nudge, func(t *testing.T) {
				spec := &agboxv1.AgentSpec{Format: dialect.Claude, Nudge: nudge, SaveCommand: []string{"sleep", "1000", "0"}}
				withAgent(t, spec, func(t *testing.T, p *player, box, id string) {
					p.prompt(t, id, "until-nudged")
					pass(50 * time.Millisecond)
					p.wantAgent(t, id, agentBusy)
					row.begin(t, p, box)
					pass(time.Second)
					if nudge == "none" {
						p.wantAgent(t, id, agentBusy)
						return
					}
					p.wantAgent(t, id, agentIdle) // it may still act on the nudge
					if how == "stop" {            // a drain ends with its daemon
						if err := p.restart(-1); err != nil {
							t.Fatal(err)
						}
					}
					pass(15 * time.Second)
					p.wantAgent(t, id, agentStopped)
					p.wantOutcomes(t, id, "until-nudged:end_turn")
					row.end(t, p, box)
					pass(5 * time.Second)
					p.wantAgent(t, id, agentIdle)
					p.wantGiven(t, "until-nudged", 1)
				})
			})
		}
	}
}
