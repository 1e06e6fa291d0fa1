package store

import (
	"slices"
	"testing"
)

func TestAFeedNamesWhatHasChanged(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	makeReady(t, s, "other")
	f, stop := s.WatchAll()
	want := func(when string, agents, sandboxes []string) {
		t.Helper()
		select {
		case <-f.Changed():
		default:
			t.Errorf("%s: no tick", when)
		}
		if a, b := f.Take(); !slices.Equal(a, agents) || !slices.Equal(b, sandboxes) {
			t.Errorf("%s: agents %q, sandboxes %q", when, a, b)
		}
	}
	withAgent(t, s, "agent")
	want("a create", []string{"agent"}, nil)
	makeIdle(t, s, "agent")
	for range 3 {
		prompt(t, s, "agent", "p-1")
	}
	want("several changes, with the exec of its process", []string{"agent"}, []string{"box"})
	_, err := s.RequestStop(ctx, "other", "test")
	must(t, err)
	want("a stop", nil, []string{"other"})
	s.NoteAgent("agent")
	want("a note", []string{"agent"}, nil)
	if a, b := f.Take(); len(a)+len(b) > 0 {
		t.Errorf("taken twice: %q, %q", a, b)
	}
	withAgent(t, s, "brief")
	_, err = s.RequestAgentDelete(ctx, "brief")
	must(t, err)
	f.Take()
	must(t, s.RemoveAgent(ctx, "brief"))
	if a, _ := f.Take(); !slices.Equal(a, []string{"brief"}) {
		t.Errorf("a removal: %q", a)
	}
	stop()
	makeReady(t, s, "third")
	if a, b := f.Take(); len(a)+len(b) > 0 {
		t.Errorf("after the end: %q, %q", a, b)
	}
}
