package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// wakeable sets auto_resume, so that execs resume the sandbox.
func wakeable(t testing.TB, s *Store, id string) {
	t.Helper()
	_, _, err := s.UpdateSpec(ctx, id, 0, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		old.AutoResume = true
		return old, []string{"auto_resume"}, false, nil
	})
	if err != nil && !errdefs.IsFailedPrecondition(err) { // a sandbox being deleted cannot be changed
		t.Fatal(err)
	}
}

// TestExecsAndAutoResumeByState: each row has the events that the exec adds, or the refusal.
func TestExecsAndAutoResumeByState(t *testing.T) {
	const (
		refused = "sandbox %s is not ready"
		taken   = "EXEC_STARTED"
		woken   = "ACCEPTED PENDING, EXEC_STARTED"
	)
	want := map[string]string{
		"pending by a create": refused, "ready": taken, "ready, to be paused": woken, "ready, to be paused, demoted": woken,
		"ready, to be stopped": refused, "paused": woken, "paused, demoted": woken, "paused, to be stopped": refused,
		"stopped": refused, "pending by a resume": taken, "failed while paused": refused, "deleting": refused, "deleted": refused,
	}
	s := open(t, testOptions(t))
	for i, sit := range situations {
		id, execID := fmt.Sprintf("box-%d", i), fmt.Sprintf("exec-%d", i)
		sit.make(t, s, id)
		wakeable(t, s, id)
		before := get1(t, s, id)
		n := len(allEvents(t, s, id))
		e, err := s.CreateExec(ctx, execRequest(id, execID), Caller{})
		got := strings.Join(newEvents(t, s, id, n), ", ")
		if err != nil {
			got += err.Error()
		}
		if got != strings.ReplaceAll(want[sit.name], "%s", id) {
			t.Errorf("%s: %s", sit.name, got)
		}
		after := get1(t, s, id)
		if woke := want[sit.name] == woken; err == nil && (e.Desired.GetStartedSequence() != after.LastSequence || woke != (after.Desired.GetGeneration() == before.Desired.GetGeneration()+1)) {
			t.Errorf("%s: exec %v, sandbox %+v", sit.name, e.Desired, after)
		}
	}
	survives(t, s)
}

func TestAnExecAndTheResumeForItAreOneTransaction(t *testing.T) {
	s := open(t, testOptions(t))
	makePaused(t, s, "box")
	wakeable(t, s, "box")
	before := get1(t, s, "box")
	makeReady(t, s, "other")
	startExec(t, s, "other", "exec-1")
	_, err := s.CreateExec(ctx, execRequest("box", "exec-1"), Caller{})
	refusedFor(t, err, "EXEC_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "exec_id exec-1 already exists")
	if sb := get1(t, s, "box"); !sameSandbox(before, sb) {
		t.Fatalf("a refused exec woke it: %+v", sb)
	}
	var touched []Change
	s.OnCommit(func(c Change) { touched = append(touched, c) })
	startExec(t, s, "box", "exec-2")
	if want := []Change{{SandboxID: "box"}, {SandboxID: "box", ExecID: "exec-2"}}; !slices.Equal(touched, want) {
		t.Errorf("told of %v", touched)
	}
	sb := get1(t, s, "box")
	if sb.State != pending || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN || sb.Desired.GetAttempt() != storev1.Attempt_ATTEMPT_RESUME ||
		!proto.Equal(sb.Progress, before.Progress) || !slices.Equal(sb.ActiveExecs, []string{"exec-2"}) {
		t.Errorf("%+v", sb)
	}
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	if sb := get1(t, s, "box"); !sb.IdleSince.IsZero() {
		t.Errorf("idle with an active exec: %+v", sb)
	}
	survives(t, s)
}

func TestManyExecsWakeASandboxOnce(t *testing.T) {
	s := open(t, testOptions(t))
	makePaused(t, s, "box")
	wakeable(t, s, "box")
	n := len(allEvents(t, s, "box"))
	fill(t, s, 64, func(i int) {
		if _, err := s.CreateExec(ctx, execRequest("box", fmt.Sprintf("exec-%02d", i)), Caller{}); err != nil {
			t.Error(err)
		}
	})
	got := newEvents(t, s, "box", n)
	if len(got) != 65 || got[0] != "ACCEPTED PENDING" || slices.Contains(got[1:], got[0]) {
		t.Errorf("%d events: %q", len(got), got)
	}
	survives(t, s)
}

// Two events of one transaction are trimmed like two events of two transactions.
func TestAnExecThatWakesMayDropOldEvents(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	wakeable(t, s, "box")
	for i := range 40 {
		startExec(t, s, "box", fmt.Sprintf("old-%02d", i))
		endExec(t, s, fmt.Sprintf("old-%02d", i))
	}
	pauseIt(t, s, "box")
	s.SetEventHistoryLimit(20)
	for i := range 3 {
		e := startExec(t, s, "box", fmt.Sprintf("exec-%d", i))
		sb := get1(t, s, "box")
		if e.Anchor != sb.LastSequence {
			t.Errorf("anchor %d of %d", e.Anchor, sb.LastSequence)
		}
		endExec(t, s, e.ID)
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
		pauseIt(t, s, "box")
	}
	if left := allEvents(t, s, "box"); len(left) > 30 {
		t.Errorf("%d events are left", len(left))
	}
	s.o.EventHistoryLimit = 20
	s = survives(t, s)
	startExec(t, s, "box", "after")
}

// A sandbox that was frozen and thawed continues its run; one that was demoted does not.
func TestExecKilledForMemoryAcrossAPause(t *testing.T) {
	for name, row := range map[string]struct {
		between func(s *Store)
		want    bool
	}{
		"frozen and thawed": {func(s *Store) { pauseIt(t, s, "box") }, true},
		"turned back":       {func(s *Store) { accepted(t, s.RequestPause, "box") }, true},
		"demoted": {func(s *Store) {
			pauseIt(t, s, "box")
			_, err := s.Demote(ctx, "box")
			must(t, err)
			ev := phase(agboxv1.EventType_SANDBOX_PAUSED, paused)
			ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: "demoted"}}
			report(t, s, "box", ev)
		}, false},
	} {
		c := newClock()
		s := open(t, c.options(testOptions(t)))
		makeReady(t, s, "box")
		since := c.at
		killForMemory(t, s, "exec-1")
		c.pass(time.Minute)
		row.between(s)
		_, err := s.RequestResume(ctx, "box")
		must(t, err)
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
		if killed, err := s.ExecKilledForMemory(ctx, "box", since); killed != row.want || err != nil {
			t.Errorf("%s: %v, %v", name, killed, err)
		}
	}
}
