package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// atOnce runs all fns at the same time, n of each.
func atOnce(n int, fns ...func()) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for _, fn := range fns {
		for range n {
			wg.Go(func() { <-begin; fn() })
		}
	}
	close(begin)
	wg.Wait()
}

func TestOfManyResumesOneIsTheFirst(t *testing.T) {
	for _, name := range []string{"ready, to be paused", "ready, to be paused, demoted", "paused", "paused, demoted", "stopped"} {
		s := open(t, testOptions(t))
		situation(name)(t, s, "box")
		n := len(allEvents(t, s, "box"))
		var first atomic.Int32
		atOnce(64, func() {
			changed, err := s.RequestResume(ctx, "box")
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if changed {
				first.Add(1)
			}
		})
		if got := newEvents(t, s, "box", n); first.Load() != 1 || !slices.Equal(got, []string{"ACCEPTED PENDING"}) {
			t.Errorf("%s: %d changed it, events %q", name, first.Load(), got)
		}
		survives(t, s)
	}
}

// race runs two requests concurrently on a sandbox in a situation, many times, and checks that the new events and refusals equal one of
// the outcomes of running the requests one after the other.
func race(t *testing.T, prepare func(s *Store, id string), a, b func(s *Store, id string) error, outcomes ...string) {
	t.Helper()
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	const rounds = 50
	fill(t, s, rounds, func(i int) { prepare(s, boxID(i)) })
	c.pass(time.Hour)
	seen := map[string]int{}
	for i := range rounds {
		id := boxID(i)
		n := len(allEvents(t, s, id))
		errs := make([]error, 2)
		atOnce(1, func() { errs[0] = a(s, id) }, func() { errs[1] = b(s, id) })
		got := strings.Join(newEvents(t, s, id, n), ", ")
		for _, err := range errs {
			if err != nil {
				got += "; " + strings.ReplaceAll(err.Error(), id, "it")
			}
		}
		seen[got]++
	}
	for got := range seen {
		if !slices.Contains(outcomes, got) {
			t.Errorf("%d times: %q", seen[got], got)
		}
	}
	survives(t, s)
}

// changing drops the result that says whether the request changed anything.
func changing(fn func(*Store, context.Context, string) (bool, error)) func(*Store, string) error {
	return func(s *Store, id string) error { _, err := fn(s, ctx, id); return err }
}

func pauseNow(s *Store, id string) error {
	_, err := s.RequestPause(ctx, id, "pause_requested")
	return err
}

func expireNow(s *Store, _ context.Context, id string) (bool, error) { //nolint:revive // the shape of a method expression
	return s.RequestExpire(ctx, id, s.moment())
}

func deleteNow(s *Store, id string) error {
	_, err := s.RequestDelete(ctx, id, "delete_requested")
	return err
}

// running creates a READY sandbox with a deadline in a minute, which passes before the race.
func running(t *testing.T, onTimeout string) func(s *Store, id string) {
	return func(s *Store, id string) {
		sp := spec()
		sp.OnTimeout = onTimeout
		_, err := s.CreateSandbox(ctx, id, "", sp, nil)
		must(t, err)
		readyWith(t, s, id, time.Minute)
	}
}

func TestAPauseAgainstTheDeadline(t *testing.T) {
	race(t, running(t, "stop"), pauseNow, changing(expireNow),
		"PAUSE_REQUESTED READY pause_requested",
		"STOP_REQUESTED READY timeout; sandbox it is not ready")
	race(t, running(t, "pause"), pauseNow, changing(expireNow),
		"PAUSE_REQUESTED READY pause_requested", "PAUSE_REQUESTED READY timeout")
	race(t, running(t, "delete"), pauseNow, changing(expireNow),
		"PAUSE_REQUESTED READY pause_requested",
		"DELETE_REQUESTED DELETING timeout; sandbox it is not ready")
}

func TestADeleteAgainstADemotion(t *testing.T) {
	prepare := func(s *Store, id string) { makeReady(t, s, id); startExec(t, s, id, "exec-"+id); pauseIt(t, s, id) }
	race(t, prepare, deleteNow, changing((*Store).Demote), "DELETE_REQUESTED DELETING delete_requested")
	race(t, prepare, changing((*Store).RequestResume), changing((*Store).Demote), "ACCEPTED PENDING")
}

func TestANewTimeoutAgainstTheOldOne(t *testing.T) {
	set := func(s *Store, id string) error {
		_, _, err := s.SetTimeout(ctx, id, Timeout{After: time.Hour})
		return err
	}
	race(t, running(t, "stop"), set, changing(expireNow),
		"TIMEOUT_SET", "STOP_REQUESTED READY timeout; sandbox it is not running")
	race(t, running(t, "pause"), set, changing(expireNow),
		"TIMEOUT_SET", "PAUSE_REQUESTED READY timeout, TIMEOUT_SET")
}

func TestAResumeAgainstAnExecThatWakes(t *testing.T) {
	prepare := func(s *Store, id string) { makePaused(t, s, id); wakeable(t, s, id) }
	exec := func(s *Store, id string) error {
		_, err := s.CreateExec(ctx, execRequest(id, "exec-"+id), Caller{})
		return err
	}
	race(t, prepare, changing((*Store).RequestResume), exec, "ACCEPTED PENDING, EXEC_STARTED")
	race(t, prepare, deleteNow, exec, "DELETE_REQUESTED DELETING delete_requested; sandbox it is not ready",
		"ACCEPTED PENDING, EXEC_STARTED, DELETE_REQUESTED DELETING delete_requested")
}

// The report of a pass that races with a client's resume writes nothing.
func TestTheReportOfAFreezeAfterAResumeIsDropped(t *testing.T) {
	report := func(s *Store, id string) error {
		err := s.Report(ctx, id, Report{
			Generation: 2, Progress: &storev1.Progress{Frozen: true},
			Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_PAUSED, paused)},
		})
		if errdefs.IsAborted(err) {
			return errors.New("aborted")
		}
		return err
	}
	prepare := func(s *Store, id string) { makeReady(t, s, id); accepted(t, s.RequestPause, id) }
	race(t, prepare, report, changing((*Store).RequestResume), "PAUSED PAUSED, ACCEPTED PENDING", "ACCEPTED PENDING; aborted")
}
