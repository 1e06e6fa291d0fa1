package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
)

// makePaused creates a frozen sandbox with some progress.
func makePaused(t testing.TB, s *Store, id string) {
	t.Helper()
	makeReady(t, s, id)
	pauseIt(t, s, id)
}

func pauseIt(t testing.TB, s *Store, id string) {
	t.Helper()
	_, err := s.RequestPause(ctx, id, "pause_requested")
	must(t, err)
	d := get1(t, s, id).Desired
	must(t, s.Report(ctx, id, Report{
		Generation: d.GetGeneration(), Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_PAUSED, paused)},
		Progress: &storev1.Progress{HooksDone: 2, PrimaryStarted: true, Frozen: true},
	}))
}

// words returns the content of events, without their times.
func words(events []*agboxv1.SandboxEvent) (all []string) {
	for _, ev := range events {
		what := strings.TrimPrefix(ev.GetEventType().String(), "SANDBOX_")
		if state := ev.GetSandboxState(); state != 0 {
			what += " " + enum.Word(state)
		}
		if why := ev.GetSandboxPhase().GetReason(); why != "" {
			what += " " + why
		}
		all = append(all, what)
	}
	return all
}

// newEvents returns the events after the first n.
func newEvents(t testing.TB, s *Store, id string, n int) []string {
	t.Helper()
	return words(allEvents(t, s, id)[n:])
}

func TestAPauseAndAResumeKeepTheProgressOfTheRun(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makePaused(t, s, "box")
	before := get1(t, s, "box")
	if !before.IdleSince.IsZero() || before.Desired.GetGeneration() != 2 || !slices.Equal(s.FrozenIDs(), []string{"box"}) {
		t.Fatalf("paused: %+v", before)
	}
	c.pass(time.Hour)
	_, err := s.RequestResume(ctx, "box")
	must(t, err)
	sb := get1(t, s, "box")
	if !proto.Equal(sb.Progress, before.Progress) || sb.Desired.GetAttempt() != storev1.Attempt_ATTEMPT_RESUME || len(s.FrozenIDs()) != 0 {
		t.Fatalf("resumed: %+v", sb)
	}
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	if sb := get1(t, s, "box"); !sb.IdleSince.Equal(c.at) {
		t.Fatalf("idle since %v", sb.IdleSince)
	}
	want := []string{"PAUSE_REQUESTED READY pause_requested", "PAUSED PAUSED", "ACCEPTED PENDING", "READY READY"}
	if got := newEvents(t, s, "box", 3); !slices.Equal(got, want) {
		t.Fatalf("events %q", got)
	}
	survives(t, s)
}

func TestACancelledPauseMayHaveFrozenSomeContainers(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	must(t, s.Report(ctx, "box", Report{Generation: 1, Progress: &storev1.Progress{HooksDone: 2, PrimaryStarted: true}}))
	accepted(t, s.RequestPause, "box")
	_, err := s.RequestResume(ctx, "box")
	must(t, err)
	if p := get1(t, s, "box").Progress; !proto.Equal(p, &storev1.Progress{HooksDone: 2, PrimaryStarted: true, Frozen: true}) {
		t.Fatalf("%v", p)
	}
}

// After a death, the controller requests a stop first.
func TestAPauseThatNobodyEndedIsNotReportedAsAStop(t *testing.T) {
	for name, demote := range map[string]bool{"frozen": false, "being demoted": true} {
		s := open(t, testOptions(t))
		makeReady(t, s, "box")
		pauseIt(t, s, "box")
		if demote {
			_, err := s.Demote(ctx, "box")
			must(t, err)
		}
		before := get1(t, s, "box")
		ev := phase(agboxv1.EventType_SANDBOX_STOPPED, stopped)
		err := s.Report(ctx, "box", Report{Generation: before.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{ev}})
		if !errdefs.IsFailedPrecondition(err) || get1(t, s, "box").LastSequence != before.LastSequence {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAStopOfAPausedOneStaysPausedUntilItIsDone(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makePaused(t, s, "box")
	since := c.at
	c.pass(time.Minute)
	accepted(t, s.RequestStop, "box")
	if sb := get1(t, s, "box"); sb.State != paused || !sb.StateChangedAt.Equal(since) || len(s.FrozenIDs()) != 0 {
		t.Fatalf("%+v", sb)
	}
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	want := []string{"STOP_REQUESTED PAUSED asked", "STOPPED STOPPED"}
	if got := newEvents(t, s, "box", 5); !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	survives(t, s)
}

func TestAPassReportsOnlyARequestedPause(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	try := func(generation uint64, ev *agboxv1.SandboxEvent) error {
		return s.Report(ctx, "box", Report{Generation: generation, Events: []*agboxv1.SandboxEvent{ev}})
	}
	if err := try(1, phase(agboxv1.EventType_SANDBOX_PAUSED, paused)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("nobody wants it: %v", err)
	}
	for _, ev := range []*agboxv1.SandboxEvent{
		phase(agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, ready),
		phase(agboxv1.EventType_SANDBOX_TIMEOUT_SET, 0), phase(agboxv1.EventType_SANDBOX_REHYDRATED, ready),
	} {
		if err := try(1, ev); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", ev, err)
		}
	}
	accepted(t, s.RequestPause, "box")
	if err := try(1, phase(agboxv1.EventType_SANDBOX_PAUSED, paused)); !errdefs.IsAborted(err) {
		t.Errorf("of an old generation: %v", err)
	}
	must(t, try(2, phase(agboxv1.EventType_SANDBOX_PAUSED, paused)))
}

func TestFrozenOnesAreListedLongestFirst(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	for _, id := range []string{"box-c", "box-a", "box-d", "box-b"} {
		makePaused(t, s, id)
		if id != "box-d" { // paused at the same time as box-b
			c.pass(time.Second)
		}
	}
	makeReady(t, s, "running")
	want := []string{"box-c", "box-a", "box-b", "box-d"}
	for range 2 {
		if got := s.FrozenIDs(); !slices.Equal(got, want) {
			t.Fatalf("%v", got)
		}
		s = reopen(t, s)
	}
}

func TestAPausedSandboxKeepsItsNameAndPorts(t *testing.T) {
	s := open(t, testOptions(t))
	_, err := s.CreateSandbox(ctx, "box", "web", portSpec(8080, ""), nil)
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	pauseIt(t, s, "box")
	_, err = s.Demote(ctx, "box")
	must(t, err)
	s = reopen(t, s)
	refusedFor(t, s.CheckCreate(ctx, "next", "web", spec(), Caller{}, ""), "SANDBOX_NAME_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox name web already exists")
	refusedFor(t, s.CheckCreate(ctx, "next", "", portSpec(8080, ""), Caller{}, ""), "SANDBOX_PORT_ALREADY_IN_USE", errdefs.ErrAlreadyExists,
		"host port 8080/tcp is already published by sandbox web; choose another host port or delete that sandbox")
}

func TestAnIntentOfALaterVersionIsNotGuessedAt(t *testing.T) {
	s := open(t, testOptions(t))
	makePaused(t, s, "box")
	s = reopen(t, s)
	if c := s.Corrupt(); len(c) > 0 {
		t.Fatalf("%v", c)
	}
	d := get1(t, s, "box").Desired
	d.RunState = storev1.RunState_RUN_STATE_PAUSE + 1
	must(t, s.update(ctx, func(t *txn) error { t.put(bucketDesired, "box", d); return nil }))
	s = reopen(t, s)
	if _, err := s.Sandbox(ctx, "box"); !errdefs.IsDataLoss(err) {
		t.Fatal(err)
	}
}
