package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/store"
)

const (
	agentIdle    = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy    = agboxv1.AgentState_AGENT_STATE_BUSY
	agentStopped = agboxv1.AgentState_AGENT_STATE_STOPPED
)

// withAgent is withDaemon with a running sandbox and an idle agent in it.
func withAgent(t *testing.T, spec *agboxv1.AgentSpec, test func(t *testing.T, p *player, box, agent string)) {
	t.Helper()
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", spec)
		pass(time.Second)
		p.wantAgent(t, "ada", agentIdle)
		test(t, p, box, "ada")
	})
}

func (p *player) newAgent(t *testing.T, box, id string, spec *agboxv1.AgentSpec) {
	t.Helper()
	if spec == nil {
		spec = &agboxv1.AgentSpec{}
	}
	spec.SandboxId = box
	if spec.Command == nil {
		spec.Command = []string{"agent"}
	}
	if _, err := p.store.CreateAgent(context.Background(), id, "", spec); err != nil {
		t.Fatal(err)
	}
}

func (p *player) agent(t *testing.T, id string) store.Agent {
	t.Helper()
	a, err := p.store.Agent(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p *player) wantAgent(t *testing.T, id string, want agboxv1.AgentState) {
	t.Helper()
	if a := p.agent(t, id); a.Status.GetState() != want {
		line, _ := p.daemon.AgentStatus(id)
		t.Fatalf("%s is %s (%s), want %s; %q; %s", id, a.Status.GetState(), a.Status.GetReason(), want, line, p.triggers(t, id))
	}
}

// prompt queues a prompt whose ID is its text.
func (p *player) prompt(t *testing.T, id, text string) {
	t.Helper()
	if _, err := p.store.QueuePrompt(context.Background(), id, promptID(text), text); err != nil {
		t.Fatal(err)
	}
}

func promptID(text string) string { return strings.ReplaceAll(text, " ", "_") }

// triggers returns the transitions of an agent in order.
func (p *player) triggers(t *testing.T, id string) string {
	t.Helper()
	list, err := p.store.Transitions(context.Background(), id, 0, 256)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tr := range list {
		names = append(names, enum.Word(tr.GetTrigger()))
	}
	return strings.Join(names, " ")
}

func (p *player) wantTriggers(t *testing.T, id, want string) {
	t.Helper()
	if got := p.triggers(t, id); got != want {
		t.Fatalf("%s went through\n%s, want\n%s", id, got, want)
	}
}

// wantGiven fails unless processes have read a prompt that many times, and that many of its results are recorded.
func (p *player) wantGiven(t *testing.T, text string, times int) []given {
	t.Helper()
	list := p.shim.said.prompts(promptID(text))
	if len(list) != times {
		t.Fatalf("%q was given %d times, want %d: %+v", text, len(list), times, list)
	}
	return list
}

// outcomes returns the recorded results: "prompt outcome".
func (p *player) outcomes(t *testing.T, id string) string {
	t.Helper()
	var list []string
	for _, ev := range p.agentEvents(t, id) {
		if r := ev.GetResult(); r != nil {
			list = append(list, fmt.Sprintf("%s:%s", r.GetPromptId(), r.GetOutcome()))
		}
	}
	return strings.Join(list, " ")
}

func (p *player) wantOutcomes(t *testing.T, id, want string) {
	t.Helper()
	if got := p.outcomes(t, id); got != want {
		t.Fatalf("results are %q, want %q; %s", got, want, p.triggers(t, id))
	}
}

func (p *player) agentEvents(t *testing.T, id string) []*agboxv1.AgentEvent {
	t.Helper()
	all, err := allEvents(p.store, id)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func allEvents(s *store.Store, id string) (all []*agboxv1.AgentEvent, err error) {
	for after := uint64(0); ; {
		batch, err := s.AgentEvents(context.Background(), id, after, 256)
		if err != nil || len(batch) == 0 {
			return all, err
		}
		all, after = append(all, batch...), batch[len(batch)-1].GetSequence()
	}
}

// queue returns the waiting prompts, with a star for held ones.
func (p *player) queue(t *testing.T, id string) string {
	t.Helper()
	list, err := p.store.QueuedPrompts(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, q := range list {
		name := q.GetPromptId()
		if q.GetHeld() {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// ask requests a change of the desired state from the store.
func (p *player) ask(t *testing.T, verb func(context.Context, string) (bool, error), id string) {
	t.Helper()
	if _, err := verb(context.Background(), id); err != nil {
		t.Fatal(err)
	}
}

func (p *player) stopBox(t *testing.T, id string) {
	t.Helper()
	if _, err := p.store.RequestStop(context.Background(), id, "stop_requested"); err != nil {
		t.Fatal(err)
	}
}
