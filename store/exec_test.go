package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func execRequest(id, execID string) *agboxv1.CreateExecRequest {
	return &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"true"}}
}

func TestExecIsRecordedWithNonceAndEvent(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	a, b := startExec(t, s, "box", "exec-a"), startExec(t, s, "box", "exec-b")
	if len(a.Desired.GetNonce()) != 32 || a.Desired.GetNonce() == b.Desired.GetNonce() || a.Desired.GetStartedSequence() != 4 {
		t.Fatalf("%v, %v", a.Desired, b.Desired)
	}
	if got := s.ActiveExecs("box"); !slices.Equal(got, []string{"exec-a", "exec-b"}) {
		t.Fatalf("active: %v", got)
	}
	s = reopen(t, s)
	e, err := s.Exec(ctx, "exec-a")
	if err != nil || e.Desired.GetNonce() != a.Desired.GetNonce() || e.End != nil || e.SandboxID != "box" {
		t.Fatalf("%+v, %v", e, err)
	}
	if got := s.ActiveExecs(""); !slices.Equal(got, []string{"exec-a", "exec-b"}) {
		t.Fatalf("active after reopen: %v", got)
	}
}

func TestExecNeedsAReadySandboxWithoutAPendingStop(t *testing.T) {
	s := open(t, testOptions(t))
	_, err := s.CreateExec(ctx, execRequest("nobody", "exec-1"), Caller{})
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox nobody was not found")
	create(t, s, "new")
	_, err = s.CreateExec(ctx, execRequest("new", "exec-1"), Caller{})
	refusedFor(t, err, "SANDBOX_NOT_READY", errdefs.ErrFailedPrecondition, "sandbox new is not ready")
	makeReady(t, s, "box")
	_, err = s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	_, err = s.CreateExec(ctx, execRequest("box", "exec-1"), Caller{})
	refusedFor(t, err, "SANDBOX_NOT_READY", errdefs.ErrFailedPrecondition, "sandbox box is not ready")
	makeReady(t, s, "other")
	startExec(t, s, "other", "exec-1") // a refused accept reserves nothing
}

func TestExecIDIsReservedForEver(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	makeReady(t, s, "other")
	startExec(t, s, "box", "exec-1")
	endExec(t, s, "exec-1")
	_, err := s.CreateExec(ctx, execRequest("other", "exec-1"), Caller{})
	refusedFor(t, err, "EXEC_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "exec_id exec-1 already exists")
	deleteIt(t, s, "box")
	must(t, s.PurgeSandbox(ctx, "box"))
	_, err = s.CreateExec(ctx, execRequest("other", "exec-1"), Caller{})
	refusedFor(t, err, "EXEC_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "exec_id exec-1 already exists")
}

func TestExecStartedShowsTheCommandWithinItsBound(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	for i, tt := range []struct{ command, want []string }{
		{[]string{"sh", "-c", "echo ä"}, []string{"sh", "-c", "echo ä"}},
		{[]string{strings.Repeat("x", 1023)}, []string{strings.Repeat("x", 1023)}},
		{[]string{strings.Repeat("x", 1022) + "ä"}, []string{strings.Repeat("x", 1022) + "..."}},
		{[]string{strings.Repeat("x", 1022), "y", "z"}, []string{strings.Repeat("x", 1022), "..."}},
		{make([]string, 5000), append(make([]string, 1024), "...")},
	} {
		req := execRequest("box", fmt.Sprintf("exec-%d", i))
		req.Command, req.EnvOverrides = tt.command, map[string]string{"TOKEN": "hidden"}
		_, err := s.CreateExec(ctx, req, Caller{})
		must(t, err)
		events := allEvents(t, s, "box")
		x := events[len(events)-1].GetExec()
		if !slices.Equal(x.GetCommand(), tt.want) || strings.Contains(x.String(), "hidden") {
			t.Errorf("exec %d: %v", i, x)
		}
		endExec(t, s, req.GetExecId())
		events = allEvents(t, s, "box")
		if x := events[len(events)-1].GetExec(); x.GetCommand() != nil {
			t.Errorf("the end of exec %d has the command as well: %v", i, x)
		}
	}
}

func TestExecEndsOnce(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	end := &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ExitCode: 7, ErrorCode: "EXEC_RUN_FAILED", ErrorMessage: "exit \xff7"}
	must(t, s.EndExec(ctx, "exec-1", end))
	must(t, s.EndExec(ctx, "exec-1", finished()))
	e, err := s.Exec(ctx, "exec-1")
	if err != nil || e.End.GetExitCode() != 7 || e.End.GetSequence() != 5 {
		t.Fatalf("%+v, %v", e, err)
	}
	events := allEvents(t, s, "box")
	last := events[len(events)-1]
	if len(events) != 5 || last.GetEventType() != agboxv1.EventType_EXEC_FAILED || last.GetExec().GetExitCode() != 7 || last.GetSandboxState() != 0 {
		t.Fatalf("%v", last)
	}
	if got := s.ActiveExecs(""); len(got) != 0 {
		t.Fatalf("active: %v", got)
	}
	if err := s.EndExec(ctx, "nobody", finished()); !errdefs.IsNotFound(err) {
		t.Fatalf("unknown exec: %v", err)
	}
	if err := s.EndExec(ctx, "exec-1", &storev1.ExecEnd{State: 1}); !errdefs.IsInvalidArgument(err) {
		t.Fatalf("running is no end: %v", err)
	}
}

func TestCancelIsRecordedOnce(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	for i, want := range []bool{true, false} {
		if changed, err := s.RequestCancel(ctx, "exec-1"); changed != want || err != nil {
			t.Fatalf("cancel %d: %v, %v", i, changed, err)
		}
		c.pass(time.Second)
	}
	e, err := s.Exec(ctx, "exec-1")
	if err != nil || time.Unix(0, e.Desired.GetCancelRequestedAt()) != newClock().at {
		t.Fatalf("%v, %v", e.Desired, err)
	}
	endExec(t, s, "exec-1")
	_, err = s.RequestCancel(ctx, "exec-1")
	refusedFor(t, err, "EXEC_ALREADY_TERMINAL", errdefs.ErrFailedPrecondition, "exec exec-1 is already terminal")
	_, err = s.RequestCancel(ctx, "nobody")
	refusedFor(t, err, "EXEC_NOT_FOUND", errdefs.ErrNotFound, "exec nobody was not found")
}

func killForMemory(t *testing.T, s *Store, execID string) {
	t.Helper()
	startExec(t, s, "box", execID)
	must(t, s.EndExec(ctx, execID, &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ExitCode: 137, OomKilled: true}))
}

func wantKilled(t *testing.T, s *Store, since time.Time, want bool) {
	t.Helper()
	if killed, err := s.ExecKilledForMemory(ctx, "box", since); killed != want || err != nil {
		t.Fatal(killed, err)
	}
}

// manyEvents adds more than one page of events.
func manyEvents(t *testing.T, s *Store) {
	t.Helper()
	for range maxRead + 10 {
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_SERVICE_FAILED, ready))
	}
}

func TestExecKilledForMemoryReadsOnlyThisRun(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	wantKilled(t, s, c.at, false)
	killForMemory(t, s, "exec-1")
	manyEvents(t, s)
	wantKilled(t, s, c.at, true)
	c.pass(time.Minute)
	since := c.at
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_RESTARTED, ready))
	manyEvents(t, s)
	wantKilled(t, s, since, false)
	killForMemory(t, s, "exec-2")
	wantKilled(t, s, since, true)
}

func TestExecKilledForMemoryBeforeTheRestartWasOnRecord(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	c.pass(time.Minute)
	since := c.at
	killForMemory(t, s, "exec-1")
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_RESTARTED, ready))
	wantKilled(t, s, since, true)
}

func TestExecKilledForMemoryAfterTheClockWasSetBack(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	since := c.at
	c.pass(-time.Hour)
	killForMemory(t, s, "exec-1")
	c.pass(-time.Hour)
	manyEvents(t, s)
	wantKilled(t, s, since, true)
}

func TestExecKilledForMemoryBeforeAResumeDoesNotCount(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	killForMemory(t, s, "exec-1")
	c.pass(-time.Hour) // by time alone, the old run would count as the new one
	_, err := s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_STOPPED))
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	wantKilled(t, s, c.at, false)
}

func TestExecsListsActiveAndEndedOnesInPages(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box1")
	makeReady(t, s, "box2")
	var want []string
	for i := range maxRead + 10 {
		id := fmt.Sprintf("exec-%04d", i)
		want = append(want, id)
		startExec(t, s, "box1", id)
	}
	startExec(t, s, "box2", "other-1")
	if err := s.EndExec(ctx, want[3], &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ExitCode: 3}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	for _, row := range []struct {
		filter ExecFilter
		pages  int
		want   []string
	}{
		{ExecFilter{}, 2, append(slices.Clone(want), "other-1")},
		{ExecFilter{SandboxID: "box1"}, 2, want},
		{ExecFilter{SandboxID: "box2"}, 1, []string{"other-1"}},
		{ExecFilter{SandboxID: "nobody"}, 1, nil},
		{ExecFilter{Prefix: "exec-000"}, 1, want[:10]},
		{ExecFilter{Prefix: "exec-000", After: want[7]}, 1, want[8:10]},
		{ExecFilter{Prefix: "zzz"}, 1, nil},
	} {
		var got []string
		pages := 0
		for f, more := row.filter, true; more; pages++ {
			page, err := s.Execs(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Execs {
				got = append(got, e.ID)
				if ended := e.ID == want[3]; ended != (e.End.GetExitCode() == 3) {
					t.Errorf("%+v", e)
				}
			}
			f.After, more = page.Next, page.Next != ""
		}
		if pages != row.pages || !slices.Equal(got, row.want) {
			t.Errorf("%+v: %d execs in %d pages, want %d in %d", row.filter, len(got), pages, len(row.want), row.pages)
		}
	}
}

func TestAPageOfExecsIsBoundedInBytes(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box1")
	for i := range 4 {
		req := execRequest("box1", fmt.Sprintf("exec-%d", i))
		req.Command = append(req.Command, strings.Repeat("x", execPageBytes-100))
		if _, err := s.CreateExec(ctx, req, Caller{}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Execs(ctx, ExecFilter{})
	if err != nil || len(page.Execs) != 2 || page.Next != "exec-1" {
		t.Errorf("%d execs, next is %q, %v", len(page.Execs), page.Next, err)
	}
}
