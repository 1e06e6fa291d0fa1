package controller_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

// TestAgentsOfAContainerThatOthersStop: what docker stop leaves of an agent, and how it goes on after a resume.
func TestAgentsOfAContainerThatOthersStop(t *testing.T) {
	const (
		stopping, cutIt = "its container was being stopped", "its container was being stopped before its turn had ended"
		stopped, cutOff = "its container was stopped by others", "its container was stopped by others before its turn had ended"
	)
	for _, row := range []struct {
		name, text             string
		grace                  time.Duration
		spec                   *agboxv1.AgentSpec
		away, older            bool
		triggers, saved, queue string
		reason                 string
		saves                  int // how often the save command ran
	}{
		{name: "idle", triggers: "DRAIN_PARKED", reason: stopping},
		{name: "a turn that ends when it is interrupted: its work is saved", text: "hang", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000", "0"}},
			triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", saved: "saved", saves: 1, queue: "hang", reason: stopping},
		{name: "an agent that never answers: its work is saved", text: "deaf", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000", "0"}},
			triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "saved", saves: 1, queue: "deaf", reason: cutIt},
		{name: "an agent that ends too late: its save never starts, not even after the resume", text: "deaf",
			spec:     &agboxv1.AgentSpec{Command: []string{"agent", "stubborn"}, SaveCommand: []string{"sleep", "1000", "0"}},
			triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "not saved", queue: "deaf", reason: cutOff},
		{name: "a save without an end", text: "hang", spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000000", "0"}},
			triggers: "PROMPT_RECEIVED RESULT_RECEIVED DRAIN_PARKED", saved: "not saved", saves: 1, queue: "hang", reason: stopping},
		{name: "a grace that is too short", text: "deaf", grace: 2 * time.Second, spec: &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "1000", "0"}},
			triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "not saved", queue: "deaf", reason: cutOff},
		{name: "an older PID 1", text: "hang", older: true, triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "not saved", queue: "hang", reason: cutOff},
		{name: "while agboxd is away", text: "hang", away: true, triggers: "PROMPT_RECEIVED DRAIN_PARKED", saved: "not saved", queue: "hang", reason: cutOff},
		{name: "idle, while agboxd is away", away: true, triggers: "DRAIN_PARKED", reason: stopped},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.spec == nil {
				row.spec = &agboxv1.AgentSpec{}
			}
			row.spec.RestartPolicy = "never" // parked agents start again all the same
			withAgent(t, row.spec, func(t *testing.T, p *player, box, id string) {
				if !row.older {
					p.shim.parks = func(*fakeBox) bool { return !row.away }
				}
				if row.text != "" {
					p.prompt(t, id, row.text)
					pass(50 * time.Millisecond)
					p.wantAgent(t, id, agentBusy)
				}
				if row.away {
					p.die()
				}
				if err := p.engine.StopOutside(p.container(0), cmp.Or(row.grace, 10*time.Second)); err != nil {
					t.Fatal(err)
				}
				if row.away {
					if err := p.restart(noDeath); err != nil {
						t.Fatal(err)
					}
				}
				pass(15 * time.Second)
				p.wantState(t, box, boxStopped)
				p.wantTriggers(t, id, strings.TrimSpace("SPAWN CONNECTED "+row.triggers))
				a := p.agent(t, id)
				if a.Status.GetSaved() != row.saved || !a.Status.GetParked() || a.Status.GetReason() != row.reason || p.queue(t, id) != row.queue {
					t.Errorf("%s, queue %q", a.Status, p.queue(t, id))
				}
				if _, err := p.store.RequestResume(t.Context(), box); err != nil {
					t.Fatal(err)
				}
				pass(5 * time.Second)
				if a := p.agent(t, id); a.Status.GetIncarnation() != 2 {
					t.Errorf("%s", a.Status)
				}
				if n := p.shim.runs(box + execid.ForHelper(execid.ToSave, execid.ForAgent(id, 1))); n != row.saves {
					t.Errorf("its work was saved %d times", n)
				}
			})
		})
	}
}
