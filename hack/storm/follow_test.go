package main

import (
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// S4, S7: a gap, a repetition and a step back in a followed stream are reported, also across streams, and so is a reason of the clock.
func TestFollowedStreamsAreJudged(t *testing.T) {
	stream := func(end codes.Code, seqs ...uint64) *fakeStream {
		s := &fakeStream{end: end}
		for _, n := range seqs {
			s.events = append(s.events, &agboxv1.SandboxEvent{Sequence: n, EventId: fmt.Sprintf("s-%d", n)})
		}
		return s
	}
	const cut = codes.Unavailable
	renamed, clock := stream(cut, 1), stream(cut, 1)
	renamed.events[0].EventId = "other-1"
	clock.events[0].Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: "idle_ttl"}}
	for name, row := range map[string]struct {
		streams []*fakeStream
		want    string
	}{
		"whole":                      {[]*fakeStream{stream(cut, 1, 2, 3)}, ""},
		"whole over two daemons":     {[]*fakeStream{stream(cut, 1, 2), stream(cut), stream(cut, 3)}, ""},
		"a gap":                      {[]*fakeStream{stream(cut, 1, 3)}, "gave event s-3 after 1"},
		"a gap between two daemons":  {[]*fakeStream{stream(cut, 1), stream(cut, 3)}, "gave event s-3 after 1"},
		"twice":                      {[]*fakeStream{stream(cut, 1, 1)}, "gave event s-1 after 1"},
		"twice over two daemons":     {[]*fakeStream{stream(cut, 1, 2), stream(cut, 2, 3)}, "gave event s-2 after 2"},
		"not from the first":         {[]*fakeStream{stream(cut, 2)}, "gave event s-2 after 0"},
		"another sandbox's":          {[]*fakeStream{renamed}, "gave event other-1 after 0"},
		"by the clock":               {[]*fakeStream{clock}, "is by idle_ttl, and no such time has passed"},
		"the sandbox is not there":   {[]*fakeStream{stream(codes.NotFound)}, ""},
		"it is not there any more":   {[]*fakeStream{stream(cut, 1), stream(codes.NotFound)}, "of which 1 events were streamed, is not there any more"},
		"the history is shorter now": {[]*fakeStream{stream(cut, 1, 2), stream(codes.OutOfRange)}, "knows nothing of event 2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // followOne runs for 15 s
				b := newBook()
				followOne(t.Context(), &fakeAPI{streams: row.streams}, b, "s")
				b.wantProblem(t, row.want)
			})
		})
	}
}
