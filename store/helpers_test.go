package store

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
)

const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// testOptions returns options for a new file of this test, with a quiet log and a small mapping.
func testOptions(t testing.TB) Options {
	t.Helper()
	return Options{
		Path:            filepath.Join(t.TempDir(), "data", "ids.db"),
		InitialMmapSize: 64 << 20,
		Logger:          slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFatal:         func(err error) { t.Errorf("fatal: %v", err) },
	}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	must(t, s.Close())
	return open(t, s.o)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func spec() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Image: "busybox", Labels: map[string]string{"team": "a"}, Envs: map[string]string{"K": "v"}}
}

func create(t testing.TB, s *Store, id string) Sandbox {
	t.Helper()
	sb, err := s.CreateSandbox(context.Background(), id, "", spec(), nil)
	must(t, err)
	return sb
}

func phase(typ agboxv1.EventType, state agboxv1.SandboxState) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventType: typ, SandboxState: state}
}

func failure(code string) *agboxv1.SandboxEvent {
	ev := phase(agboxv1.EventType_SANDBOX_FAILED, failed)
	ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: code, ErrorMessage: code + " happened"}}
	return ev
}

// report reports on the current generation.
func report(t testing.TB, s *Store, id string, events ...*agboxv1.SandboxEvent) {
	t.Helper()
	must(t, s.Report(context.Background(), id, Report{Generation: get1(t, s, id).Desired.GetGeneration(), Events: events}))
}

func get1(t testing.TB, s *Store, id string) Sandbox {
	t.Helper()
	sb, err := s.Sandbox(context.Background(), id)
	must(t, err)
	return sb
}

func makeReady(t testing.TB, s *Store, id string) {
	t.Helper()
	create(t, s, id)
	report(t, s, id, phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	report(t, s, id, phase(agboxv1.EventType_SANDBOX_READY, ready))
}

func makeDeleted(t testing.TB, s *Store, id string) {
	t.Helper()
	create(t, s, id)
	deleteIt(t, s, id)
}

func deleteIt(t testing.TB, s *Store, id string) {
	t.Helper()
	_, err := s.RequestDelete(context.Background(), id, "delete_requested")
	must(t, err)
	report(t, s, id, phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
}

func startExec(t testing.TB, s *Store, id, execID string) Exec {
	t.Helper()
	e, err := s.CreateExec(context.Background(), &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"true"}}, Caller{})
	must(t, err)
	return e
}

func finished() *storev1.ExecEnd {
	return &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED), StartedAt: 1, EndedAt: 2}
}

func endExec(t testing.TB, s *Store, execID string) {
	t.Helper()
	must(t, s.EndExec(context.Background(), execID, finished()))
}

// allEvents pages through the events and checks that they have no gap from 1, or from the trimmed sequence on.
func allEvents(t testing.TB, s *Store, id string) []*agboxv1.SandboxEvent {
	t.Helper()
	var trimmed uint64
	if sb := s.index.sandbox(id); sb != nil {
		trimmed = sb.history.trimmed
	}
	c := Cursor{GapsTo: trimmed}
	var all []*agboxv1.SandboxEvent
	for {
		page, err := s.EventsAfter(context.Background(), id, c, 0)
		must(t, err)
		if len(page) == 0 {
			return all
		}
		for _, ev := range page {
			seq := ev.GetSequence()
			if seq != c.After+1 && (seq <= c.After || c.After >= trimmed) {
				t.Fatalf("event %d of %s comes after %d, trimmed to %d", seq, id, c.After, trimmed)
			}
			if ev.GetEventId() != fmt.Sprintf("%s-%d", id, seq) || ev.GetOccurredAt() == nil {
				t.Fatalf("event %d of %s is %v", seq, id, ev)
			}
			all = append(all, ev)
			c.After = seq
		}
	}
}

// clock is a settable clock.
type clock struct{ at time.Time }

func newClock() *clock                { return &clock{time.Unix(1_700_000_000, 0)} }
func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func (c *clock) options(o Options) Options {
	o.Now = c.now
	return o
}

// moment returns the current time by the store's clock, without a known clock error.
func (s *Store) moment() clockjump.Moment { return clockjump.Moment{Now: s.o.Now()} }

func boxID(i int) string { return fmt.Sprintf("box-%05d", i) }

// fill runs fn for 0 to n-1, some of them concurrently, so that they share commits.
func fill(t testing.TB, s *Store, n int, fn func(i int)) {
	t.Helper()
	var wg sync.WaitGroup
	const workers = 64
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	wg.Wait()
}

// heldBy returns the live sandbox that holds a name.
func heldBy(s *Store, name string) (Sandbox, bool) {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	sb := s.index.sandboxes[s.index.names[name]]
	if sb == nil {
		return Sandbox{}, false
	}
	return sb.copied(), true
}
