package store

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestADemotionIsOneTransactionWithoutAnEvent(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	for _, execID := range []string{"exec-1", "exec-2", "exec-3"} {
		startExec(t, s, "box", execID)
	}
	endExec(t, s, "exec-3")
	pauseIt(t, s, "box")
	since := c.at
	c.pass(time.Hour)
	var touched []Change
	s.OnCommit(func(c Change) { touched = append(touched, c) })
	if changed, err := s.Demote(ctx, "box"); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if want := []Change{{SandboxID: "box"}, {SandboxID: "box", ExecID: "exec-1"}, {SandboxID: "box", ExecID: "exec-2"}}; !slices.Equal(touched, want) {
		t.Errorf("told of %v", touched)
	}
	s = survives(t, s)
	sb := get1(t, s, "box")
	at := c.at.UnixNano()
	if d := sb.Desired; d.GetDemotedAt() != at || d.GetRequestedAt() != at || d.GetGeneration() != 3 || d.GetRunState() != storev1.RunState_RUN_STATE_PAUSE {
		t.Errorf("%v", d)
	}
	if !proto.Equal(sb.Progress, &storev1.Progress{HooksDone: 2, PrimaryStarted: true, Stopping: true}) || len(s.FrozenIDs()) > 0 {
		t.Errorf("%v", sb.Progress)
	}
	for execID, want := range map[string]int64{"exec-1": at, "exec-2": at, "exec-3": 0} {
		if e, err := s.Exec(ctx, execID); err != nil || e.Desired.GetCancelRequestedAt() != want {
			t.Errorf("%s: %v, %v", execID, e.Desired, err)
		}
	}
	c.pass(time.Minute)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PAUSED, paused))
	if sb := get1(t, s, "box"); sb.State != paused || !sb.StateChangedAt.Equal(since) || sb.LastSequence != 10 {
		t.Errorf("%+v", sb)
	}
	survives(t, s)
}

func TestAResumeOfADemotedOneBeginsWithTheEndOfItsStop(t *testing.T) {
	for name, row := range map[string]struct {
		progress *storev1.Progress // as the demotion left it; nil: unchanged
		want     *storev1.Progress
	}{
		"being stopped": {nil, &storev1.Progress{HooksDone: 2, Stopping: true}},
		"stopped":       {&storev1.Progress{HooksDone: 2}, &storev1.Progress{HooksDone: 2}},
	} {
		s := open(t, testOptions(t))
		makePaused(t, s, "box")
		_, err := s.Demote(ctx, "box")
		must(t, err)
		must(t, s.Report(ctx, "box", Report{Generation: 3, Progress: row.progress}))
		_, err = s.RequestResume(ctx, "box")
		must(t, err)
		if sb := get1(t, s, "box"); !proto.Equal(sb.Progress, row.want) || sb.Desired.GetDemotedAt() != 0 {
			t.Errorf("%s: %+v", name, sb)
		}
	}
}

func TestAStopEndsWhatADemotionBegan(t *testing.T) {
	s := open(t, testOptions(t))
	situation("paused, demoted")(t, s, "box")
	accepted(t, s.RequestStop, "box")
	if d := get1(t, s, "box").Desired; d.GetDemotedAt() != 0 {
		t.Fatalf("%v", d)
	}
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err := s.RequestResume(ctx, "box")
	must(t, err)
	if p := get1(t, s, "box").Progress; !proto.Equal(p, &storev1.Progress{HooksDone: 2}) {
		t.Fatalf("%v", p)
	}
}

// An exec with a damaged record does not keep the sandbox from being stopped.
func TestADemotionSkipsUnreadableRecords(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	startExec(t, s, "box", "exec-2")
	pauseIt(t, s, "box")
	must(t, s.update(ctx, func(t *txn) error {
		t.stage(putOp(prefixExecDesired+"box", []byte("exec-1"), []byte("\xff")))
		return nil
	}))
	if changed, err := s.Demote(ctx, "box"); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if e, err := s.Exec(ctx, "exec-2"); err != nil || e.Desired.GetCancelRequestedAt() == 0 {
		t.Fatal(e, err)
	}
}

func TestWhatWasDemotedIsCollectedInTime(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makePaused(t, s, "box")
	c.pass(time.Hour)
	collect := func(after time.Duration, want bool) {
		t.Helper()
		if changed, err := s.RequestPauseCleanup(ctx, "box", after, s.moment()); changed != want || err != nil {
			t.Fatal(changed, err)
		}
	}
	collect(time.Minute, false) // frozen
	_, err := s.Demote(ctx, "box")
	must(t, err)
	c.pass(time.Hour - 1)
	collect(time.Hour, false)
	c.pass(-2 * time.Hour)
	collect(time.Hour, false)
	c.pass(2*time.Hour + 1)
	collect(0, false)
	collect(-1, false)
	collect(time.Hour, true)
	if got := newEvents(t, s, "box", 5); !slices.Equal(got, []string{"DELETE_REQUESTED DELETING stopped_gc"}) {
		t.Fatalf("%q", got)
	}
	if changed, err := s.RequestCleanup(ctx, "box", 1, s.moment()); changed || err != nil {
		t.Fatal(changed, err)
	}
}

func TestCleanupLeavesPausedOnesAlone(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makePaused(t, s, "box")
	makePaused(t, s, "demoted")
	_, err := s.Demote(ctx, "demoted")
	must(t, err)
	c.pass(1000 * time.Hour)
	for _, id := range []string{"box", "demoted"} {
		if changed, err := s.RequestCleanup(ctx, id, time.Hour, s.moment()); changed || err != nil {
			t.Errorf("%s: %v, %v", id, changed, err)
		}
	}
}
