package store

import (
	"strings"
	"testing"
)

func TestAPageOfEventsIsBoundedInBytes(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	turn(t, s, 1, 40, strings.Repeat("x", 100<<10))
	page, err := s.AgentEvents(ctx, "agent", 0, 0)
	must(t, err)
	bytes := 0
	for _, ev := range page {
		bytes += len(ev.GetPart().GetText())
	}
	if len(page) == 0 || bytes > maxReadBytes {
		t.Fatalf("%d events of %d bytes", len(page), bytes)
	}
	parts := 0
	for _, ev := range agentEvents(t, s, "agent") {
		if ev.GetPart() != nil && ev.GetPart().GetMessageId() == "m.1" {
			parts++
		}
	}
	if parts != 40 {
		t.Errorf("%d parts in all pages", parts)
	}
}

func TestAnEventBeyondTheBoundOfAPageIsReadAlone(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	turn(t, s, 1, 2, strings.Repeat("x", maxReadBytes+1))
	for _, ev := range agentEvents(t, s, "agent") {
		if ev.GetPart().GetMessageId() != "m.1" {
			continue
		}
		if page, err := s.AgentEvents(ctx, "agent", ev.GetSequence()-1, 0); err != nil || len(page) != 1 {
			t.Errorf("event %d: %d events, %v", ev.GetSequence(), len(page), err)
		}
	}
}
