package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// execs runs so many execs to their end, many at once. long pads their IDs, and so their events.
func (f *fixture) execs(sandboxID, prefix string, n int, long bool) {
	f.t.Helper()
	if long {
		prefix += strings.Repeat("x", 150)
	}
	var wg sync.WaitGroup
	const workers = 32
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				id := fmt.Sprintf("%s-%d", prefix, i)
				f.exec(sandboxID, id)
				f.endExec(id)
			}
		})
	}
	wg.Wait()
}

func TestSubscribeOverTrimmedHistory(t *testing.T) {
	f := newFixture(t)
	f.store.SetEventHistoryLimit(100)
	f.create("abcd", ready)
	many := make([]*agboxv1.SandboxEvent, 400) // more than one page of them stays below the mark
	for i := range many {
		many[i] = &agboxv1.SandboxEvent{EventType: agboxv1.EventType_SANDBOX_SERVICE_READY, SandboxState: ready}
	}
	f.must(f.store.Report(t.Context(), "abcd", store.Report{Generation: 1, Events: many}))
	f.exec("abcd", "long")
	f.execs("abcd", "exec", 100, false)

	_, err := f.subscribe(t.Context(), "abcd", 5, false).Recv()
	const newest = 2 + 400 + 1 + 200
	refused(t, err, codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "sandbox abcd event sequence 5 is outside retained history", nil)
	oldest, err := strconv.ParseUint(errorInfo(err).GetMetadata()["oldest_sequence"], 10, 64)
	f.must(err)
	for _, anchor := range []uint64{oldest - 1, oldest} { // both are good, and gap-free from there on
		s := f.subscribe(t.Context(), "abcd", anchor, false)
		for i, e := range recv(t, s, int(newest-anchor)) {
			if e.GetSequence() != anchor+uint64(i)+1 || !e.GetReplay() {
				t.Fatalf("after %d: %v", anchor, e)
			}
		}
	}
	replay := f.subscribe(t.Context(), "abcd", 0, true)
	got := recv(t, replay, 2+402+int(newest-oldest))
	if got[0].GetSequence() != newest || got[1].GetExec().GetExecId() != "long" || got[2].GetSequence() != 1 || got[403].GetSequence() != 402 || got[404].GetSequence() != oldest {
		t.Errorf("a replay from 0 is not what is left: %v", got[403:405])
	}

	resp, err := f.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: "long"})
	f.must(err)
	waiter := f.subscribe(t.Context(), "abcd", resp.GetExec().GetLastEventSequence(), false) // its start is gone
	f.endExec("long")
	if e := recv(t, waiter, 1)[0]; e.GetExec().GetExecId() != "long" || e.GetExec().GetExecState() != agboxv1.ExecState_EXEC_STATE_FAILED {
		t.Errorf("got %v", e)
	}
}

// A stream never hides that events were dropped before they were sent.
func TestASlowSubscriberGetsOutOfRange(t *testing.T) {
	f := newFixture(t)
	f.store.SetEventHistoryLimit(100)
	f.create("abcd", ready)
	s := f.subscribe(t.Context(), "abcd", 2, false)
	f.execs("abcd", "exec", 600, true) // far more than the flow control window holds
	last := uint64(2)
	for {
		e, err := s.Recv()
		if err != nil {
			refused(t, err, codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", fmt.Sprintf("sandbox abcd event sequence %d is outside retained history", last), nil)
			return
		}
		if e.GetSequence() != last+1 {
			t.Fatalf("%d comes after %d", e.GetSequence(), last)
		}
		last = e.GetSequence()
	}
}

// The purge comes while streams wait for events, in the middle of a replay, and before the first event is sent.
func TestAPurgeEndsEveryStreamCleanly(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	f.execs("abcd", "exec", 600, true)
	_, err := f.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "abcd"})
	f.must(err)
	f.report("abcd", deleted)
	const newest = 2 + 1200 + 2
	waiting, reading, idle := f.subscribe(t.Context(), "abcd", newest, false), f.subscribe(t.Context(), "abcd", 0, false), f.subscribe(t.Context(), "abcd", 0, true)
	recv(t, reading, 10)
	f.must(f.store.PurgeSandbox(t.Context(), "abcd"))
	cleanEnd(t, waiting)
	for name, s := range map[string]grpc.ServerStreamingClient[agboxv1.SandboxEvent]{"reading": reading, "idle": idle} {
		for n := 0; ; n++ {
			_, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || n > newest {
				t.Fatalf("%s: after %d events: %v", name, n, err)
			}
		}
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // what a pool holds goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Fifty clients subscribe and never read. Others create, run and follow as if they were not there, and what the stalled
// streams keep does not grow with what they have not read.
func TestASubscriberThatNeverReadsCostsNobodyElse(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	f.execs("abcd", "first", 300, true) // enough that each stream stalls in its replay
	const stalled = 50
	round := 700
	if testing.Short() {
		round = 350
	}
	for range stalled {
		f.subscribe(t.Context(), "abcd", 0, true)
	}
	var last uint64 = 602
	reader := f.subscribe(t.Context(), "abcd", last, false)
	follow := func() uint64 {
		f.execs("abcd", fmt.Sprintf("after%d", last), round, true)
		for _, e := range recv(t, reader, 2*round) {
			if last++; e.GetSequence() != last {
				t.Fatalf("got %v, want %d", e, last)
			}
		}
		return heapBytes()
	}
	follow() // by now every stream has stalled
	before := max(follow(), follow())
	after := min(follow(), follow(), follow())
	f.create("other", ready)
	f.exec("other", "elsewhere")
	// What the stalled ones have not read in between is at least 50 x 2 x round events of 400 bytes and more. If they were kept, they
	// would be there at each look; what else is there from one look to the next can only be less of it.
	unread := stalled * 2 * round * 400
	if grown := int64(after) - int64(before); grown > int64(unread)/2 {
		t.Errorf("the heap grew by %d MB; the events not read are %d MB", grown>>20, unread>>20)
	}
	t.Logf("heap %d MB, then %d MB", before>>20, after>>20)
}

// Streams that come and go while history is trimmed: each sees only increasing sequences and, but for what was gone when
// it began, all of them.
func TestSubscribersDuringTrims(t *testing.T) {
	f := newFixture(t)
	f.store.SetEventHistoryLimit(200)
	f.create("abcd", ready)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				f.followOnce(ctx, "abcd")
			}
		})
	}
	n := 1500
	if testing.Short() {
		n = 500
	}
	f.execs("abcd", "exec", n, false)
	cancel()
	wg.Wait()
}

// followOnce takes a snapshot and 300 events.
func (f *fixture) followOnce(ctx context.Context, id string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := f.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, IncludeCurrentSnapshot: true})
	var snapshot, last uint64
	for range 300 {
		var e *agboxv1.SandboxEvent
		if err == nil {
			e, err = s.Recv()
		}
		switch {
		case slices.Contains([]codes.Code{codes.Canceled, codes.OutOfRange}, status.Code(err)):
			return // the test is over, or this reader was too slow and got the error
		case err != nil:
			f.t.Errorf("after %d: %v", last, err)
			return
		case e.GetSnapshot():
			snapshot = max(snapshot, e.GetSequence())
			continue
		case e.GetSequence() <= last, last > snapshot && e.GetSequence() != last+1:
			f.t.Errorf("%d comes after %d, the snapshot was at %d", e.GetSequence(), last, snapshot)
			return
		}
		last = e.GetSequence()
	}
}
