package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agbox/agbox/internal/execid"
)

// cutLog removes the last byte of the log: it still holds all transactions, but is not complete.
func cutLog(t testing.TB, o Options) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(LogDir(o.Path), "segment-*"))
	must(t, err)
	info, err := os.Stat(segments[len(segments)-1])
	must(t, errors.Join(err, os.Truncate(segments[len(segments)-1], info.Size()-1)))
}

// TestAnAgentIsRestoredUnchanged in the middle of a turn, with its queue.
func TestAnAgentIsRestoredUnchanged(t *testing.T) {
	s := open(t, testOptions(t))
	awaitLog(t, s)
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p")
	ingest(t, s, "agent", said(messageBegins("m"))...)
	o := copyTree(t, s.o)
	was := agent1(t, s, "agent")
	events, err := s.AgentEvents(ctx, "agent", 0, 0)
	must(t, err)
	loseFile(t, o)
	back := open(t, o)
	is := agent1(t, back, "agent")
	if !proto.Equal(is.Status, was.Status) || !proto.Equal(is.Desired, was.Desired) || is.Queued != was.Queued {
		t.Errorf("it is %+v, and was %+v", is, was)
	}
	if got, err := back.AgentEvents(ctx, "agent", 0, 0); err != nil || len(got) != len(events) {
		t.Errorf("it has %d events, and had %d; %v", len(got), len(events), err)
	}
}

// TestAnAgentNumbersItsProcessAfterAnUnrecordedOne: the log has lost its end, but the execs of its sandbox include the process.
func TestAnAgentNumbersItsProcessAfterAnUnrecordedOne(t *testing.T) {
	for _, lives := range []bool{false, true} {
		s := open(t, testOptions(t))
		awaitLog(t, s)
		withAgent(t, s, "agent")
		withAgent(t, s, "agent-2") // its execs sort next to agent's
		if lives {
			makeIdle(t, s, "agent")
			makeBusy(t, s, "agent", "p")
		}
		o := copyTree(t, s.o)
		if lives {
			trigger(t, s, "agent", crashed)
			endExec(t, s, "agent.1")
		}
		spawn(t, s, "agent")
		cutLog(t, o)
		loseFile(t, o)
		back := open(t, o)
		recordRebuilt(t, back, recordsOf(t, s)...)
		must(t, back.RebuildDone(ctx))
		a, want := agent1(t, back, "agent"), agent1(t, s, "agent").Status.GetIncarnation()
		if a.Status.GetState() != agentFailed || a.Status.GetIncarnation() != want || lives != (a.Queued == 1) {
			t.Errorf("lives %t: it is %v with %d prompts", lives, a.Status, a.Queued)
		}
		must(t, back.EndExec(ctx, execid.ForAgent("agent", want), finished()))
		if a := spawn(t, back, "agent"); a.Status.GetIncarnation() != want+1 {
			t.Errorf("the next one is %d", a.Status.GetIncarnation())
		}
		must(t, back.Close())
		if all := findings(t, back.o.Path); len(all) > 0 {
			t.Errorf("findings: %v", all)
		}
	}
}
