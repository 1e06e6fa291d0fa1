package store

import (
	"slices"
	"testing"
	"time"
)

// boxIdle checks the sandbox's idle time, now and after a reopen.
func boxIdle(t *testing.T, s *Store, what string, want time.Time) *Store {
	t.Helper()
	if got := get1(t, s, "box").IdleSince; !got.Equal(want) {
		t.Errorf("%s: idle since %v, want %v", what, got, want)
	}
	s = reopen(t, s)
	if got := get1(t, s, "box").IdleSince; !got.Equal(want) {
		t.Errorf("%s, opened again: idle since %v, want %v", what, got, want)
	}
	return s
}

func TestOnlyABusyAgentHoldsTheIdleClock(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	withAgent(t, s, "agent")
	c.pass(time.Minute)
	makeIdle(t, s, "agent")
	s = boxIdle(t, s, "an idle agent", c.at)
	c.pass(time.Minute)
	makeBusy(t, s, "agent", "p-1")
	s = boxIdle(t, s, "a busy agent", noTime)
	c.pass(time.Hour)
	if changed, err := s.RequestIdleStop(ctx, "box", time.Minute, s.moment()); changed || err != nil {
		t.Errorf("stopped under a busy agent: %v, %v", changed, err)
	}
	ingest(t, s, "agent", resultOutput("end_turn"))
	since := c.at
	s = boxIdle(t, s, "after the turn", since)
	startExec(t, s, "box", "exec-1")
	s = boxIdle(t, s, "a plain exec", noTime)
	c.pass(time.Minute)
	endExec(t, s, "exec-1")
	s = boxIdle(t, s, "after the plain exec", c.at)
	c.pass(time.Hour)
	if changed, err := s.RequestIdleStop(ctx, "box", time.Hour, s.moment()); !changed || err != nil {
		t.Errorf("an idle agent holds it: %v, %v", changed, err)
	}
}

// TestTheEventAtWhichTheIdleClockBeganStays even while an agent holds the idle clock.
func TestTheEventAtWhichTheIdleClockBeganStays(t *testing.T) {
	c := newClock()
	o := c.options(testOptions(t))
	o.EventHistoryLimit = 4
	s := open(t, o)
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	startExec(t, s, "box", "exec-1")
	c.pass(time.Hour)
	endExec(t, s, "exec-1")
	since := c.at
	c.at = c.at.Add(-30 * time.Minute) // set back: only the event has the start of the idle time
	makeBusy(t, s, "agent", "p-1")
	for range 20 {
		report(t, s, "box", serviceEvent())
	}
	ingest(t, s, "agent", resultOutput("end_turn"))
	boxIdle(t, s, "after the turn", since)
}

func TestBecomingIdleEnqueuesTheSandbox(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	var boxes, agents []string
	s.OnCommit(func(c Change) {
		if c.AgentID != "" {
			agents = append(agents, c.AgentID)
			return
		}
		boxes = append(boxes, c.SandboxID+"/"+c.ExecID)
	})
	told := func(what string, wantBoxes []string, wantAgents int) {
		t.Helper()
		if !slices.Equal(boxes, wantBoxes) || len(agents) != wantAgents {
			t.Errorf("%s: told %q and %q", what, boxes, agents)
		}
		boxes, agents = nil, nil
	}
	makeIdle(t, s, "agent")
	told("spawned and ready", []string{"box/agent.1"}, 2)
	makeBusy(t, s, "agent", "p-1")
	told("queued and busy", []string{"box/"}, 2)
	ingest(t, s, "agent", said(messageBegins("m"), partEvent("m", 0, "a"))...)
	told("a part of a message", nil, 0)
	ingest(t, s, "agent", resultOutput("end_turn"))
	told("the turn ends", []string{"box/"}, 1)
}

func TestWatchersOfAnAgentSeeItsEventsAndItsEnd(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	changed, stop := s.WatchAgent("agent")
	defer stop()
	spawn(t, s, "agent")
	if _, open := <-changed; !open {
		t.Fatal("closed by an event")
	}
	endExec(t, s, "agent.1")
	_, err := s.RequestAgentDelete(ctx, "agent")
	must(t, err)
	must(t, s.RemoveAgent(ctx, "agent"))
	if _, open := <-changed; open {
		t.Fatal("not closed by the removal")
	}
}
