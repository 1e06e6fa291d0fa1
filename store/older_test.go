package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store/storetest"
)

// Phases of a life, as an older daemon recorded them.
func olderLife(upTo agboxv1.SandboxState) []*agboxv1.SandboxEvent {
	ev := storetest.Phase
	life := []*agboxv1.SandboxEvent{
		ev(agboxv1.EventType_SANDBOX_ACCEPTED, pending, ""), ev(agboxv1.EventType_SANDBOX_PREPARING, pending, "materialize"),
		ev(agboxv1.EventType_SANDBOX_READY, ready, ""),
	}
	stop := []*agboxv1.SandboxEvent{
		ev(agboxv1.EventType_SANDBOX_STOP_REQUESTED, ready, "stop_requested"), ev(agboxv1.EventType_SANDBOX_STOPPED, stopped, "stop_requested"),
	}
	remove := []*agboxv1.SandboxEvent{
		ev(agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting, "delete_requested"),
		ev(agboxv1.EventType_SANDBOX_DELETED, deleted, "delete_requested"),
	}
	switch upTo {
	case pending:
		return life[:2]
	case ready:
		return life
	case stopped:
		return append(life, stop...)
	case deleting:
		return append(life, remove[0])
	case deleted:
		return append(life, remove...)
	}
	return append(life[:2], ev(agboxv1.EventType_SANDBOX_FAILED, failed, "SANDBOX_CREATE_FAILED"))
}

var olderStart = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

// olderVillage has a sandbox in every state that the older contract knows.
func olderVillage(t *testing.T, path string) {
	t.Helper()
	o := storetest.NewOlder(t, path, olderStart)
	defer o.Close()
	ev, ex := storetest.Phase, storetest.ExecEvent
	for _, state := range []agboxv1.SandboxState{pending, ready, stopped, failed, deleting, deleted} {
		id := strings.ToLower(strings.TrimPrefix(state.String(), "SANDBOX_STATE_"))
		o.Sandbox("box-"+id, spec(), olderLife(state)...)
	}
	o.Put("sandbox-deleted-at", "box-deleted", olderStart.Add(time.Hour))
	o.Sandbox("box-stopping", spec(), append(olderLife(ready), ev(agboxv1.EventType_SANDBOX_STOP_REQUESTED, ready, "idle_ttl"))...)
	o.Sandbox("box-resuming", spec(), append(olderLife(stopped), ev(agboxv1.EventType_SANDBOX_ACCEPTED, pending, ""))...)
	o.Sandbox("box-accepted", spec())
	o.Put("sandbox-ids", "box-purged", olderStart)
	o.Exec("box-ready", "exec-done", "true")
	o.Exec("box-ready", "exec-running", "sleep", "1000")
	o.Put("exec-ids", "exec-purged", olderStart)
	o.Event("box-ready", 4, ex(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{ExecId: "exec-done", ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING}))
	o.Event("box-ready", 5, ex(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{ExecId: "exec-running", ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING}))
	o.Event("box-ready", 6, ex(agboxv1.EventType_EXEC_FAILED, &agboxv1.ExecEventDetails{
		ExecId: "exec-done", ExitCode: 3, ExecState: agboxv1.ExecState_EXEC_STATE_FAILED, ErrorCode: "EXEC_RUN_FAILED", ErrorMessage: "exit 3",
	}))
}

func TestADatabaseOfAnOlderDaemonIsAdopted(t *testing.T) {
	o := testOptions(t)
	olderVillage(t, o.Path)
	before, err := os.ReadFile(o.Path)
	must(t, err)
	s := open(t, o)
	for _, c := range []struct {
		id    string
		state agboxv1.SandboxState
		run   storev1.RunState
		last  uint64
	}{
		{"box-pending", failed, storev1.RunState_RUN_STATE_RUN, 3},
		{"box-accepted", failed, storev1.RunState_RUN_STATE_RUN, 2},
		{"box-ready", ready, storev1.RunState_RUN_STATE_RUN, 7},
		{"box-stopping", ready, storev1.RunState_RUN_STATE_STOP, 4},
		{"box-stopped", stopped, storev1.RunState_RUN_STATE_STOP, 5},
		{"box-resuming", pending, storev1.RunState_RUN_STATE_RUN, 6},
		{"box-failed", failed, storev1.RunState_RUN_STATE_RUN, 3},
		{"box-deleting", deleting, storev1.RunState_RUN_STATE_DELETE, 4},
		{"box-deleted", deleted, storev1.RunState_RUN_STATE_DELETE, 5},
	} {
		sb, err := s.Sandbox(ctx, c.id)
		if err != nil || sb.State != c.state || sb.Desired.GetRunState() != c.run || sb.LastSequence != c.last || sb.Desired.GetAdopted() == nil ||
			sb.Spec.GetImage() != "busybox" {
			t.Errorf("%s: %v in %s, wants %s, last event %d: %v", c.id, sb.Spec, sb.State, sb.Desired.GetRunState(), sb.LastSequence, err)
		}
		if !sb.CreatedAt.Before(olderStart.Add(time.Hour)) {
			t.Errorf("%s was created at %s", c.id, sb.CreatedAt)
		}
		if c.state == deleted && !sb.DeletedAt.Equal(olderStart.Add(time.Hour)) {
			t.Errorf("%s was deleted at %s", c.id, sb.DeletedAt)
		}
	}
	if sb, _ := s.Sandbox(ctx, "box-resuming"); sb.Desired.GetAttempt() != storev1.Attempt_ATTEMPT_RESUME || sb.Preparing {
		t.Errorf("a resume continues as %s", sb.Desired.GetAttempt())
	}
	if sb, _ := s.Sandbox(ctx, "box-stopping"); sb.Desired.GetReason() != "idle_ttl" {
		t.Errorf("the stop has lost its reason: %q", sb.Desired.GetReason())
	}
	if ex, err := s.Exec(ctx, "exec-done"); err != nil || ex.End.GetExitCode() != 3 || ex.End.GetSequence() != 6 || ex.Desired.GetStartedSequence() != 4 {
		t.Errorf("exec-done: %v, %v", ex, err)
	}
	if ex, err := s.Exec(ctx, "exec-running"); err != nil || ex.End.GetErrorCode() != "EXEC_LOST" || ex.End.GetSequence() != 7 ||
		!slices.Equal(ex.Request.GetCommand(), []string{"sleep", "1000"}) {
		t.Errorf("exec-running: %v, %v", ex, err)
	}
	for _, id := range []string{"box-purged", "box-ready", "box-deleted"} {
		if _, err := s.CreateSandbox(ctx, id, "", spec(), nil); !errdefs.IsAlreadyExists(err) {
			t.Errorf("ID %s is free: %v", id, err)
		}
	}
	_, err = s.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: "box-ready", ExecId: "exec-new", Command: []string{"true"}}, Caller{})
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Reason != "SANDBOX_ADOPTED" {
		t.Errorf("an exec in a container without a shim: %v", err)
	}
	if _, err := s.CreateAgent(ctx, "ada-1", "", &agboxv1.AgentSpec{SandboxId: "box-ready"}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("an agent in a container without a shim: %v", err)
	}
	s = reopen(t, s)
	if sb, err := s.Sandbox(ctx, "box-ready"); err != nil || sb.State != ready {
		t.Errorf("after a restart: %v, %v", sb.State, err)
	}
	must(t, s.Close())
	must(t, CheckFile(o.Path))
	must(t, CheckRecords(o.Path, func(f Finding) { t.Error(f) }))
	kept := olderCopies(t, o.Path)
	if len(kept) != 1 {
		t.Fatalf("copies: %q", kept)
	}
	if after, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the kept database has changed: %v", err)
	}
}

func olderCopies(t *testing.T, path string) []string {
	t.Helper()
	kept, err := filepath.Glob(path + ".older-*")
	must(t, err)
	return kept
}

func TestWhatIsNotADatabaseOfAnOlderDaemonIsLeftAlone(t *testing.T) {
	lives := func(o *storetest.Older) { o.Sandbox("box-1", spec(), olderLife(ready)...) }
	for _, c := range []struct {
		name string
		make func(o *storetest.Older)
		want string
	}{
		{"a bucket of neither", func(o *storetest.Older) { lives(o); o.Put("invoices", "1", []byte("x")) }, `buckets that neither agboxd nor an older daemon writes: "invoices"`},
		{"another program's file", func(o *storetest.Older) { o.Put("meta", "version", []byte("x")); o.Put("users", "1", []byte("x")) }, `"users"`},
		{"a reservation of another width", func(o *storetest.Older) { lives(o); o.Put("sandbox-ids", "box-2", []byte("x")) }, `record "box-2" of bucket sandbox-ids: integer of 1 bytes`},
		{"a spec that does not decode", func(o *storetest.Older) { lives(o); o.Put("sandbox-config", "box-1", []byte("\xff")) }, `record "box-1" of bucket sandbox-config: decode CreateSpec`},
		{"an event of another sandbox", func(o *storetest.Older) {
			lives(o)
			o.Put("events:box-1", string(encodeInt(4)), &agboxv1.SandboxEvent{SandboxId: "box-2", Sequence: 4})
		}, `record "4" of bucket events:box-1: it says that it is event 4 of sandbox "box-2"`},
		{"an event with a text as its key", func(o *storetest.Older) { lives(o); o.Put("events:box-1", "four", &agboxv1.SandboxEvent{}) }, "integer of 4 bytes"},
		{"a sandbox without a spec", func(o *storetest.Older) {
			o.Put("sandbox-ids", "box-1", olderStart)
			o.Event("box-1", 1, olderLife(ready)[0])
		}, `record "box-1" of bucket sandbox-config: it is missing`},
		{"a sandbox without a reservation", func(o *storetest.Older) { o.Put("sandbox-config", "box-1", spec()) }, `record "box-1" of bucket sandbox-ids: the ID is not reserved`},
		{"a live sandbox with a time of its deletion", func(o *storetest.Older) { lives(o); o.Put("sandbox-deleted-at", "box-1", olderStart) }, "the events say that the sandbox is SANDBOX_STATE_READY"},
		{"an exec ID in two sandboxes", func(o *storetest.Older) {
			lives(o)
			o.Sandbox("box-2", spec(), olderLife(ready)...)
			o.Exec("box-1", "exec-1", "true")
			o.Exec("box-2", "exec-1", "true")
		}, `has an exec of this ID too`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(t)
			older := storetest.NewOlder(t, o.Path, olderStart)
			c.make(older)
			older.Close()
			before, err := os.ReadFile(o.Path)
			must(t, err)
			for range 2 {
				s, err := Open(ctx, o)
				if err == nil {
					must(t, s.Close())
				}
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("%v; want %q", err, c.want)
				}
			}
			if after, err := os.ReadFile(o.Path); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file has changed: %v", err)
			}
			for _, name := range []string{o.Path + unfinishedOlder, LogDir(o.Path)} {
				if _, err := os.Lstat(name); err == nil {
					t.Errorf("%s is left", name)
				}
			}
			if kept := olderCopies(t, o.Path); len(kept) != 0 {
				t.Errorf("it was set aside as %q", kept)
			}
		})
	}
}

func TestAnOlderDatabaseBesideALogOfAgboxdIsRefused(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	create(t, s, "box-1")
	<-s.LogReady()
	must(t, s.Close())
	must(t, os.Remove(o.Path))
	olderVillage(t, o.Path)
	if _, err := Open(ctx, o); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "is the log of a database of agboxd") {
		t.Errorf("%v", err)
	}
}

func TestAnOlderDatabaseInUseIsNotAdopted(t *testing.T) {
	o := testOptions(t)
	o.LockTimeout = 10 * time.Millisecond
	older := storetest.NewOlder(t, o.Path, olderStart)
	older.Sandbox("box-1", spec(), olderLife(ready)...)
	if _, err := Open(ctx, o); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("%v", err)
	}
	older.Close()
	if sb, err := open(t, o).Sandbox(ctx, "box-1"); err != nil || sb.State != ready {
		t.Errorf("after it ended: %v, %v", sb.State, err)
	}
}

// The states that a death leaves: an unfinished new file, also beside the kept name.
func TestAnAdoptionThatWasCutOffStartsAgain(t *testing.T) {
	for _, linked := range []bool{false, true} {
		o := testOptions(t)
		olderVillage(t, o.Path)
		before, err := os.ReadFile(o.Path)
		must(t, err)
		must(t, os.WriteFile(o.Path+unfinishedOlder, before[:len(before)/2], 0o600))
		if linked {
			must(t, os.Link(o.Path, o.Path+".older-20250301T120000Z"))
		}
		s := open(t, o)
		if sb, err := s.Sandbox(ctx, "box-ready"); err != nil || sb.LastSequence != 7 {
			t.Errorf("event %d is the last: %v", sb.LastSequence, err)
		}
		kept := olderCopies(t, o.Path)
		if len(kept) != 1 {
			t.Fatalf("copies: %q", kept)
		}
		if after, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the kept database has changed: %v", err)
		}
		if _, err := os.Lstat(o.Path + unfinishedOlder); err == nil {
			t.Error("the unfinished file is left")
		}
	}
}

// A history that the older daemon has cut at its beginning, or that has a gap, is kept from there on.
func TestAnOlderHistoryMayLackItsBeginning(t *testing.T) {
	o := testOptions(t)
	older := storetest.NewOlder(t, o.Path, olderStart)
	older.Sandbox("box-1", spec())
	for i, ev := range olderLife(ready) {
		older.Event("box-1", uint64(i+40), ev)
	}
	older.Exec("box-1", "exec-1", "true")
	older.Event("box-1", 43, storetest.ExecEvent(agboxv1.EventType_EXEC_FINISHED, &agboxv1.ExecEventDetails{
		ExecId: "exec-1", ExecState: agboxv1.ExecState_EXEC_STATE_FINISHED,
	}))
	older.Close()
	s := open(t, o)
	if ex, err := s.Exec(ctx, "exec-1"); err != nil || ex.Desired.GetStartedSequence() != 42 || ex.End.GetSequence() != 43 {
		t.Errorf("%v, %v", ex, err)
	}
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		if n, err := decodeInt(get(tx, bucketTrimmed, []byte("box-1"))); err != nil || n != 39 {
			t.Errorf("trimmed to %d: %v", n, err)
		}
		return nil
	}))
	must(t, s.Close())
	must(t, CheckRecords(o.Path, func(f Finding) { t.Error(f) }))
}
