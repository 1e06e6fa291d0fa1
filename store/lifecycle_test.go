package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var ctx = context.Background()

func refusedFor(t *testing.T, err error, reason string, class error, message string) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != reason || !errors.Is(err, class) || r.Message != message {
		t.Fatalf("got %v (%+v), want %s: %s", err, r, reason, message)
	}
}

func TestPlainLifeGivesTheSevenEvents(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box-1")
	changed, err := s.RequestStop(ctx, "box-1", "stop_requested")
	if !changed || err != nil {
		t.Fatal(changed, err)
	}
	if sb := get1(t, s, "box-1"); sb.State != ready || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_STOP || sb.Desired.GetGeneration() != 2 {
		t.Fatalf("while stopping: %+v", sb)
	}
	report(t, s, "box-1", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err = s.RequestResume(ctx, "box-1")
	must(t, err)
	if sb := get1(t, s, "box-1"); sb.Preparing || sb.State != pending || sb.Desired.GetAttempt() != storev1.Attempt_ATTEMPT_RESUME {
		t.Fatalf("while resuming: %+v", sb)
	}
	report(t, s, "box-1", phase(agboxv1.EventType_SANDBOX_READY, ready))
	var got []agboxv1.EventType
	for _, ev := range allEvents(t, s, "box-1") {
		got = append(got, ev.GetEventType())
	}
	if want := []agboxv1.EventType{1, 2, 3, 5, 6, 1, 3}; !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
}

func TestCreateReservesIDAndName(t *testing.T) {
	s := open(t, testOptions(t))
	sb, err := s.CreateSandbox(ctx, "box-1", "web", spec(), nil)
	must(t, err)
	if sb.State != pending || sb.LastSequence != 1 || sb.Desired.GetGeneration() != 1 || sb.Name != "web" {
		t.Fatalf("%+v", sb)
	}
	_, err = s.CreateSandbox(ctx, "box-1", "other", spec(), nil)
	refusedFor(t, err, "SANDBOX_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox_id box-1 already exists")
	_, err = s.CreateSandbox(ctx, "box-2", "web", spec(), nil)
	refusedFor(t, err, "SANDBOX_NAME_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox name web already exists")
	if ok, err := s.Reserved(ctx, "box-2"); ok || err != nil {
		t.Fatal("a refused accept kept its ID", err)
	}
	_, err = s.RequestDelete(ctx, "box-1", "delete_requested")
	must(t, err)
	if _, held := heldBy(s, "web"); held {
		t.Fatal("a delete request keeps the name")
	}
	_, err = s.CreateSandbox(ctx, "box-2", "web", spec(), nil)
	must(t, err)
	s = reopen(t, s)
	if sb, held := heldBy(s, "web"); !held || sb.ID != "box-2" {
		t.Fatal("the name is lost after a reopen")
	}
}

func TestReturnedValuesAreCopies(t *testing.T) {
	s := open(t, testOptions(t))
	given := spec()
	sb, err := s.CreateSandbox(ctx, "box-1", "", given, nil)
	must(t, err)
	given.Image, sb.Spec.Image = "changed", "changed"
	sb.Desired.Generation = 9
	if got := get1(t, s, "box-1"); got.Spec.GetImage() != "busybox" || got.Desired.GetGeneration() != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestStopRules(t *testing.T) {
	s := open(t, testOptions(t))
	create(t, s, "pending")
	_, err := s.RequestStop(ctx, "pending", "stop_requested")
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox pending is not ready")
	makeReady(t, s, "box")
	for i, want := range []bool{true, false, false} {
		if changed, err := s.RequestStop(ctx, "box", "stop_requested"); changed != want || err != nil {
			t.Fatalf("stop %d: %v, %v", i, changed, err)
		}
	}
	if n := len(allEvents(t, s, "box")); n != 4 {
		t.Fatalf("%d events, want one stop request", n)
	}
	_, err = s.RequestStop(ctx, "nobody", "stop_requested")
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox nobody was not found")
	makeDeleted(t, s, "gone")
	_, err = s.RequestStop(ctx, "gone", "stop_requested")
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox gone is not ready")
}

func TestResumeRules(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	_, err := s.RequestResume(ctx, "box")
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox box is not stopped")
	_, err = s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	for i, want := range []bool{true, false} {
		if changed, err := s.RequestResume(ctx, "box"); changed != want || err != nil {
			t.Fatalf("resume %d: %v, %v", i, changed, err)
		}
	}
	create(t, s, "new")
	_, err = s.RequestResume(ctx, "new")
	refusedFor(t, err, "SANDBOX_INVALID_STATE", errdefs.ErrFailedPrecondition, "sandbox new is not stopped")
}

func TestDeleteRules(t *testing.T) {
	s := open(t, testOptions(t))
	create(t, s, "box")
	for i, want := range []bool{true, false} {
		if changed, err := s.RequestDelete(ctx, "box", "delete_requested"); changed != want || err != nil {
			t.Fatalf("delete %d: %v, %v", i, changed, err)
		}
	}
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
	if changed, err := s.RequestDelete(ctx, "box", "delete_requested"); changed || err != nil {
		t.Fatalf("delete of a deleted one: %v, %v", changed, err)
	}
	_, err := s.RequestDelete(ctx, "nobody", "delete_requested")
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox nobody was not found")
	sb := get1(t, s, "box")
	if sb.State != deleted || sb.DeletedAt.IsZero() || sb.Spec.GetImage() != "busybox" {
		t.Fatalf("deleted: %+v", sb)
	}
	if ids := s.LiveIDs(); len(ids) != 0 {
		t.Fatalf("live: %v", ids)
	}
}

func TestDeleteMatching(t *testing.T) {
	s := open(t, testOptions(t))
	for _, id := range []string{"box-c", "box-a", "box-b"} {
		create(t, s, id)
	}
	_, err := s.CreateSandbox(ctx, "other", "", &agboxv1.CreateSpec{Image: "x"}, nil)
	must(t, err)
	_, err = s.RequestDelete(ctx, "box-b", "delete_requested")
	must(t, err)
	ids, err := s.RequestDeleteMatching(ctx, map[string]string{"team": "a"}, "delete_requested")
	if err != nil || !slices.Equal(ids, []string{"box-a", "box-c"}) {
		t.Fatalf("%v, %v", ids, err)
	}
	if _, err := s.RequestDeleteMatching(ctx, nil, "x"); !errdefs.IsInvalidArgument(err) {
		t.Fatalf("empty selector: %v", err)
	}
}

func TestReportOfAnOldGenerationIsAborted(t *testing.T) {
	s := open(t, testOptions(t))
	create(t, s, "box")
	_, err := s.RequestDelete(ctx, "box", "delete_requested")
	must(t, err)
	err = s.Report(ctx, "box", Report{Generation: 1, Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_READY, ready)}})
	if !errdefs.IsAborted(err) {
		t.Fatalf("a ready after a delete: %v", err)
	}
	if sb := get1(t, s, "box"); sb.State != deleting || sb.LastSequence != 2 {
		t.Fatalf("%+v", sb)
	}
}

func TestReportRefusesWhatIsNotItsOwn(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	bad := map[string][]*agboxv1.SandboxEvent{
		"no type":       {phase(0, ready)},
		"an exec event": {phase(agboxv1.EventType_EXEC_FINISHED, 0)},
	}
	for name, events := range bad {
		if err := s.Report(ctx, "box", Report{Generation: 1, Events: events}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETED, deleted)}
	_, err := s.RequestDelete(ctx, "box", "delete_requested")
	must(t, err)
	if err := s.Report(ctx, "box", Report{Generation: 2, Events: gone}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("deleted with an active exec: %v", err)
	}
	if n := len(allEvents(t, s, "box")); n != 5 {
		t.Errorf("%d events: a refusal wrote one", n)
	}
}

func TestEngineRunDoesNotMoveTheGeneration(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	run := &storev1.EngineRun{BootId: "b", EngineStart: "e"}
	must(t, s.Report(ctx, "box", Report{Generation: 1, EngineRun: run}))
	s = reopen(t, s)
	if d := get1(t, s, "box").Desired; d.GetGeneration() != 1 || !proto.Equal(d.GetEngineRun(), run) {
		t.Fatalf("%v", d)
	}
}

func TestFailureIsShownWhileFailed(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	report(t, s, "box", failure("CONTAINER_DIED"))
	s = reopen(t, s)
	if sb := get1(t, s, "box"); sb.State != failed || sb.ErrorCode != "CONTAINER_DIED" || sb.ErrorMessage != "CONTAINER_DIED happened" {
		t.Fatalf("%+v", sb)
	}
	_, err := s.RequestDelete(ctx, "box", "delete_requested")
	must(t, err)
	if sb := get1(t, s, "box"); sb.ErrorCode != "" {
		t.Fatalf("%+v", sb)
	}
}

func TestIdleStopIsJudgedInTheTransaction(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	idle := func(want bool, why string) {
		t.Helper()
		if changed, err := s.RequestIdleStop(ctx, "box", time.Minute, s.moment()); changed != want || err != nil {
			t.Fatalf("%s: %v, %v", why, changed, err)
		}
	}
	idle(false, "just ready")
	c.pass(59 * time.Second)
	startExec(t, s, "box", "exec-1")
	c.pass(time.Hour)
	idle(false, "active exec")
	endExec(t, s, "exec-1")
	c.pass(59 * time.Second)
	idle(false, "too early after the exec")
	c.pass(time.Second)
	if changed, err := s.RequestIdleStop(ctx, "box", 0, s.moment()); changed || err != nil {
		t.Fatal("0 means never")
	}
	own := func(ttl *durationpb.Duration) {
		t.Helper()
		_, _, err := s.UpdateSpec(ctx, "box", 0, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
			old.IdleTtl = ttl
			return old, []string{"idle_ttl"}, false, nil
		})
		must(t, err)
	}
	own(durationpb.New(0))
	idle(false, "an update that came first says never")
	own(durationpb.New(time.Hour))
	idle(false, "an update that came first says an hour")
	own(nil)
	idle(true, "idle")
	idle(false, "stopping already")
	if ev := allEvents(t, s, "box")[8]; ev.GetSandboxPhase().GetReason() != "idle_ttl" || ev.GetSandboxState() != ready {
		t.Fatalf("%v", ev)
	}
}

// TestDiskStopIsOfTheMeasuredRun: what was measured before a resume does not count after it.
func TestDiskStopIsOfTheMeasuredRun(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	measured := get1(t, s, "box").StateChangedAt
	stop := func(want bool, why string) {
		t.Helper()
		if changed, err := s.RequestDiskStop(ctx, "box", measured, "it has 2 GiB"); changed != want || err != nil {
			t.Fatalf("%s: %v, %v", why, changed, err)
		}
	}
	_, err := s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	stop(false, "stopping already")
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	stop(false, "not ready")
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	stop(false, "resumed since the measurement")
	measured = get1(t, s, "box").StateChangedAt
	_, changed, err := s.SetTimeout(ctx, "box", Timeout{After: time.Hour})
	if must(t, err); !changed {
		t.Fatal("no new generation")
	}
	stop(true, "measured since, and its timeout is another")
	stop(false, "stopping already")
	events := allEvents(t, s, "box")
	ev := events[len(events)-1]
	if p := ev.GetSandboxPhase(); p.GetReason() != "disk_limit" || p.GetErrorMessage() != "it has 2 GiB" || ev.GetSandboxState() != ready {
		t.Fatalf("%v", ev)
	}
	s = reopen(t, s)
	if sb := get1(t, s, "box"); sb.Desired.GetReason() != ReasonDiskLimit || sb.ErrorMessage != "" {
		t.Fatalf("%+v", sb)
	}
	if changed, err := s.RequestDiskStop(ctx, "unknown", measured, ""); changed || !errdefs.IsNotFound(err) {
		t.Fatal(changed, err)
	}
}

func TestClockSetBackKeepsTheTrueTimeAndTheSequence(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	create(t, s, "box")
	c.pass(-time.Hour)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	events := allEvents(t, s, "box")
	if d := events[1].GetOccurredAt().AsTime().Sub(events[0].GetOccurredAt().AsTime()); d != -time.Hour {
		t.Fatalf("second event %v after the first", d)
	}
}
