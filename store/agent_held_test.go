package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// strike ends the process of a BUSY agent in its turn.
func strike(t *testing.T, s *Store, id, why string) {
	t.Helper()
	_, err := s.TransitionAgent(ctx, id, Transition{
		Incarnation: agent1(t, s, id).Status.GetIncarnation(), Trigger: crashed, Strike: true, Reason: why,
	})
	must(t, err)
}

// withHeld makes an agent with the held prompt p-1 and the waiting prompt p-2.
func withHeld(t *testing.T) *Store {
	t.Helper()
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	prompt(t, s, "agent", "p-1")
	prompt(t, s, "agent", "p-2")
	for range 2 {
		makeIdle(t, s, "agent")
		claim(t, s, "agent")
		strike(t, s, "agent", "its process ended with code 9")
	}
	return s
}

func TestAHeldPromptIsRedeliveredOnRequest(t *testing.T) {
	s := withHeld(t)
	for range 2 {
		a := agent1(t, s, "agent")
		if a.Held != 1 || !strings.Contains(a.HeldReason, "code 9") || a.Queued != 1 {
			t.Errorf("%d held because %q, %d wait", a.Held, a.HeldReason, a.Queued)
		}
		s = reopen(t, s)
	}
	for i := range 2 { // the reply of the first may have been lost
		changed, err := s.RequestRedelivery(ctx, "agent", "p-1")
		must(t, err)
		if changed != (i == 0) {
			t.Errorf("request %d changed %t", i, changed)
		}
	}
	for range 2 {
		if got, a := queuedIDs(t, s), agent1(t, s, "agent"); !slices.Equal(got, []string{"p-1", "p-2"}) || a.Held != 0 || a.HeldReason != "" || a.Queued != 2 {
			t.Errorf("%v, %d held, %d wait", got, a.Held, a.Queued)
		}
		s = reopen(t, s)
	}
	makeIdle(t, s, "agent")
	claim(t, s, "agent")
	if _, err := s.RequestRedelivery(ctx, "agent", "p-1"); err != nil {
		t.Errorf("while it is worked on: %v", err)
	}
	strike(t, s, "agent", "")
	if got := queuedIDs(t, s); !slices.Equal(got, []string{"p-1", "p-2"}) {
		t.Errorf("after one more strike: %v", got)
	}
}

func TestAPromptIsWithdrawn(t *testing.T) {
	s := withHeld(t)
	for _, id := range []string{"p-1", "p-2"} { // one is held, one waits
		for i := range 2 {
			changed, err := s.WithdrawPrompt(ctx, "agent", id)
			must(t, err)
			if changed != (i == 0) {
				t.Errorf("request %d for %s changed %t", i, id, changed)
			}
		}
		events := agentEvents(t, s, "agent")
		last := events[len(events)-1]
		if last.GetEventType() != agboxv1.AgentEventType_AGENT_PROMPT_WITHDRAWN || last.GetResult().GetPromptId() != id || last.GetResult().GetOutcome() != "withdrawn" {
			t.Errorf("the last event is %v", last)
		}
	}
	for range 2 {
		if a := agent1(t, s, "agent"); len(queuedIDs(t, s)) != 0 || a.Held != 0 || a.Queued != 0 || a.HeldReason != "" {
			t.Errorf("%v, %d held, %d wait", queuedIDs(t, s), a.Held, a.Queued)
		}
		s = reopen(t, s)
	}
	sent := prompt(t, s, "agent", "p-2") // the retry of a client that does not know
	if sent.Ahead != 0 || agent1(t, s, "agent").Queued != 0 {
		t.Errorf("it is queued again: %+v", sent)
	}
	if _, err := s.RequestRedelivery(ctx, "agent", "p-1"); reasonOf(err) != "AGENT_INVALID_STATE" || !errdefs.IsFailedPrecondition(err) {
		t.Errorf("redelivery of a withdrawn prompt: %v", err)
	}
}

func TestWhatCannotBeWithdrawnOrRedelivered(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	if _, err := s.WithdrawPrompt(ctx, "agent", "p-1"); reasonOf(err) != "AGENT_INVALID_STATE" || !strings.Contains(err.Error(), "interrupt") {
		t.Errorf("one that is worked on: %v", err)
	}
	ingest(t, s, "agent", resultOutput("end_turn"))
	for what, method := range map[string]func(id, prompt string) error{
		"withdraw":  func(id, prompt string) error { _, err := s.WithdrawPrompt(ctx, id, prompt); return err },
		"redeliver": func(id, prompt string) error { _, err := s.RequestRedelivery(ctx, id, prompt); return err },
	} {
		if err := method("agent", "p-1"); reasonOf(err) != "AGENT_INVALID_STATE" || !strings.Contains(err.Error(), "is over") {
			t.Errorf("%s a completed prompt: %v", what, err)
		}
		if err := method("agent", "p-9"); reasonOf(err) != "PROMPT_NOT_FOUND" || !errdefs.IsNotFound(err) {
			t.Errorf("%s an unknown prompt: %v", what, err)
		}
		if err := method("nobody", "p-1"); reasonOf(err) != "AGENT_NOT_FOUND" {
			t.Errorf("%s a prompt of nobody: %v", what, err)
		}
	}
}

// The summary of held prompts is the same before and after a restart.
func TestTheReasonOfTheNewestHeldPromptSurvives(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	hold := func(why string) {
		for range 2 {
			makeIdle(t, s, "agent")
			claim(t, s, "agent")
			strike(t, s, "agent", why)
		}
	}
	prompt(t, s, "agent", "p-1")
	hold("one")
	prompt(t, s, "agent", "p-2")
	hold("two")
	_, err := s.RequestRedelivery(ctx, "agent", "p-1")
	must(t, err)
	hold("one again")
	for range 2 {
		if got := agent1(t, s, "agent").HeldReason; !strings.Contains(got, "two") {
			t.Errorf("it is held because %q", got)
		}
		s = reopen(t, s)
	}
}
