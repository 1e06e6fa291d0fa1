package server_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func (f *fixture) subscribe(ctx context.Context, id string, from uint64, snapshot bool) grpc.ServerStreamingClient[agboxv1.SandboxEvent] {
	f.t.Helper()
	s, err := f.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from, IncludeCurrentSnapshot: snapshot})
	f.must(err)
	_, err = s.Header() // from here on, what happens is live
	f.must(err)
	return s
}

func TestSubscribeReplaysThenFollows(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	s := f.subscribe(t.Context(), "abcd", 0, false)
	f.exec("abcd", "exec1")
	for i, e := range recv(t, s, 3) {
		if e.GetSequence() != uint64(i+1) || e.GetReplay() != (i < 2) || e.GetSnapshot() || e.GetEventId() != fmt.Sprintf("abcd-%d", i+1) || e.GetOccurredAt() == nil {
			t.Errorf("event %d: %v", i, e)
		}
	}
	newest := f.subscribe(t.Context(), "abcd", 3, false) // the newest itself is a valid anchor
	f.endExec("exec1")
	e := recv(t, newest, 1)[0]
	if e.GetSequence() != 4 || e.GetReplay() || e.GetExec().GetExitCode() != 7 || e.GetExec().GetErrorCode() != "EXEC_RUN_FAILED" {
		t.Errorf("got %v", e)
	}
}

func TestSubscribeSnapshot(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	f.exec("abcd", "exec1")
	f.exec("abcd", "exec2")
	newest := uint64(4)
	s := f.subscribe(t.Context(), "abcd", newest, true)
	f.endExec("exec1")
	got := recv(t, s, 4)
	for i, want := range []struct {
		id       string
		snapshot bool
	}{{"abcd-4", true}, {"abcd-snapshot-exec1", true}, {"abcd-snapshot-exec2", true}, {"abcd-5", false}} {
		if got[i].GetEventId() != want.id || got[i].GetSnapshot() != want.snapshot || (i < 3 && got[i].GetSequence() != newest) {
			t.Errorf("event %d: %v", i, got[i])
		}
	}
	if e := got[1]; e.GetEventType() != agboxv1.EventType_EXEC_STARTED || e.GetExec().GetExecState() != agboxv1.ExecState_EXEC_STATE_RUNNING || e.GetOccurredAt() == nil || len(e.GetExec().GetCommand()) == 0 {
		t.Errorf("got %v", e)
	}

	all := f.subscribe(t.Context(), "abcd", 0, true)
	var sequences []uint64
	for _, e := range recv(t, all, 6) {
		sequences = append(sequences, e.GetSequence())
	}
	if fmt.Sprint(sequences) != "[5 5 1 2 3 4]" { // the newest, one active exec, then the rest: the newest once
		t.Errorf("got %v", sequences)
	}
}

func TestSubscribeEndsCleanlyWhenPurged(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", deleted)
	s := f.subscribe(t.Context(), "abcd", 0, false)
	recv(t, s, 3)
	f.must(f.store.PurgeSandbox(t.Context(), "abcd"))
	cleanEnd(t, s)
	_, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "abcd"})
	refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox abcd was not found", nil)
}

// Subscribers that come while events are written, more than one batch of them, miss none and get none twice.
func TestSubscribeRacesWithWriters(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	const execs = 200 // two events each, and the first two
	const last = 2 + 2*execs
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range execs {
			id := fmt.Sprintf("exec%d", i)
			f.exec("abcd", id)
			f.endExec(id)
		}
	})
	for range 8 {
		wg.Go(func() {
			s, err := f.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "abcd"})
			if err != nil {
				t.Error(err)
				return
			}
			live := false
			for want := uint64(1); want <= last; want++ {
				e, err := s.Recv()
				if err != nil || e.GetSequence() != want || (live && e.GetReplay()) {
					t.Errorf("got %v, %v, want %d", e, err, want)
					return
				}
				live = !e.GetReplay()
			}
		})
	}
	wg.Wait()
}

func TestShutdownEndsStreamsAtOnce(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	s := f.subscribe(t.Context(), "abcd", 2, false)
	f.must(f.shutdown(t.Context()))
	_, err := s.Recv() // a stream that the shutdown had to cut off has no reason
	refused(t, err, codes.Unavailable, "UNAVAILABLE", "agboxd is stopping", nil)
}

// A client that does not read blocks the handler in a send; only cutting the connection ends that.
func TestAStreamThatNobodyReadsIsCutOffByTheContextOfTheShutdown(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	f.execs("abcd", "exec", 1200, true) // far more than the flow control windows hold
	f.subscribe(t.Context(), "abcd", 0, false)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := f.shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) { // nil: the handler did not block yet
		t.Errorf("got %v", err)
	}
}
