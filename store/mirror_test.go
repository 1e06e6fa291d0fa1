package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// memoryMirror is what a mirror would hold, and refuses what goes backwards.
type memoryMirror struct {
	t         testing.TB
	mu        sync.Mutex
	sandboxes map[string]*storev1.SandboxRecord
	execs     map[string]map[string]*storev1.ExecRecord
	calls     int
}

func mirrored(t testing.TB, o Options) (Options, *memoryMirror) {
	m := &memoryMirror{t: t}
	m.reset()
	o.Mirror = m
	return o, m
}

func (m *memoryMirror) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sandboxes, m.execs, m.calls = map[string]*storev1.SandboxRecord{}, map[string]map[string]*storev1.ExecRecord{}, 0
}

func (m *memoryMirror) Sandbox(r *storev1.SandboxRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if was := m.sandboxes[r.GetSandboxId()]; was.GetLastSequence() > r.GetLastSequence() {
		m.t.Errorf("%s goes back from event %d to %d", r.GetSandboxId(), was.GetLastSequence(), r.GetLastSequence())
	}
	m.sandboxes[r.GetSandboxId()] = r
}

func (m *memoryMirror) Exec(id string, r *storev1.ExecRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.sandboxes[id] == nil {
		m.t.Errorf("exec %s comes before its sandbox %s", r.GetExecId(), id)
	}
	if m.execs[id] == nil {
		m.execs[id] = map[string]*storev1.ExecRecord{}
	}
	if was := m.execs[id][r.GetExecId()]; was.GetEnd() != nil && r.GetEnd() == nil {
		m.t.Errorf("exec %s is active again", r.GetExecId())
	}
	m.execs[id][r.GetExecId()] = r
}

func (m *memoryMirror) Gone(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	delete(m.sandboxes, id)
	delete(m.execs, id)
}

// compare fails unless m holds exactly what is live in s.
func (m *memoryMirror) compare(t testing.TB, s *Store, execIDs ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if live := s.LiveIDs(); len(live) != len(m.sandboxes) {
		t.Fatalf("%d in the mirror, live are %v", len(m.sandboxes), live)
	}
	for id, r := range m.sandboxes {
		sb := get1(t, s, id)
		if want := recordOf(&sb, s.InstanceID()); !proto.Equal(r, want) {
			t.Errorf("mirror has %v, want %v", r, want)
		}
	}
	found := 0
	for _, execID := range execIDs {
		e, err := s.Exec(ctx, execID)
		must(t, err)
		want := &storev1.ExecRecord{ExecId: e.ID, Request: e.Request, Desired: e.Desired, End: e.End}
		if !proto.Equal(m.execs[e.SandboxID][execID], want) {
			t.Errorf("mirror has %v, want %v", m.execs[e.SandboxID][execID], want)
		}
		found++
	}
	for _, execs := range m.execs {
		found -= len(execs)
	}
	if found != 0 {
		t.Errorf("the mirror has %d execs too many", -found)
	}
}

func TestTheMirrorHoldsWhatIsLiveAfterEachChange(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	s := open(t, o)
	var execs []string
	run := func() {
		e := startExec(t, s, "box", fmt.Sprintf("exec-%d", len(execs)))
		execs = append(execs, e.ID)
	}
	steps := []func() error{
		func() error { _, err := s.CreateSandbox(ctx, "box", "name", spec(), nil); return err },
		func() error { report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending)); return nil },
		func() error { report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready)); return nil },
		func() error {
			g := get1(t, s, "box").Desired.GetGeneration()
			return s.Report(ctx, "box", Report{Generation: g, EngineRun: &storev1.EngineRun{BootId: "b"}, Progress: &storev1.Progress{Copied: true}})
		},
		func() error { run(); run(); return nil },
		func() error { _, err := s.RequestCancel(ctx, "exec-1"); return err },
		func() error { return s.EndExec(ctx, "exec-0", finished()) },
		func() error { return s.EndExec(ctx, "exec-1", finished()) },
		func() error { create(t, s, "other"); return nil },
		func() error { _, err := s.RequestStop(ctx, "box", "stop_requested"); return err },
		func() error { report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped)); return nil },
		func() error { _, err := s.RequestResume(ctx, "box"); return err },
		func() error { report(t, s, "box", failure("IT")); return nil },
		func() error { deleteIt(t, s, "other"); return nil },
		func() error { return s.PurgeSandbox(ctx, "other") },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		m.compare(t, s, execs...)
	}
	deleteIt(t, s, "box")
	if len(m.sandboxes)+len(m.execs) != 0 {
		t.Errorf("what is left: %v, %v", m.sandboxes, m.execs)
	}
}

func TestTheMirrorIsHandedAChangeBeforeAnybodySeesIt(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	s := open(t, o)
	s.OnCommit(func(id, _ string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.sandboxes[id] == nil {
			t.Errorf("%s is published and not mirrored", id)
		}
	})
	fill(t, s, 200, func(i int) {
		create(t, s, boxID(i))
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.sandboxes[boxID(i)] == nil {
			t.Errorf("%s is answered and not mirrored", boxID(i))
		}
	})
}

func TestTheMirrorIsHandedNoRefusalAndNoFailedCommit(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	var fails atomic.Bool
	o.OnFatal = func(error) {}
	o.commit = func(tx *bolt.Tx) error {
		if fails.Load() {
			return errors.Join(errors.New("fdatasync"), tx.Rollback())
		}
		return tx.Commit()
	}
	s := open(t, o)
	create(t, s, "box")
	calls := m.calls
	if _, err := s.RequestStop(ctx, "box", ""); err == nil {
		t.Fatal("stop of one that is not READY")
	}
	fails.Store(true)
	if _, err := s.RequestDelete(ctx, "box", ""); err == nil {
		t.Fatal("no error")
	}
	if m.calls != calls {
		t.Errorf("%d calls of the mirror", m.calls-calls)
	}
}

func TestMirrorAllHandsOverEverySandboxWithAllItsExecs(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	s := open(t, o)
	makeReady(t, s, "box")
	makeReady(t, s, "idle")
	makeDeleted(t, s, "gone")
	const n = 2*maxRead + 10
	execs := make([]string, n)
	fill(t, s, n, func(i int) {
		execs[i] = fmt.Sprintf("exec-%04d", i)
		startExec(t, s, "box", execs[i])
		if i%2 == 0 {
			endExec(t, s, execs[i])
		}
	})
	s = reopen(t, s)
	m.reset()
	must(t, s.MirrorAll(ctx))
	m.compare(t, s, execs...)
	if m.calls != n+2 {
		t.Errorf("%d calls for %d execs and 2 sandboxes", m.calls, n)
	}
}

func TestMirrorAllNeverPutsTheOlderOverTheNewer(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	s := open(t, o)
	makeReady(t, s, "box")
	var execs []string
	for i := range 100 {
		execs = append(execs, fmt.Sprintf("exec-%04d", i))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 50 {
			must(t, s.MirrorAll(ctx))
		}
	})
	for _, execID := range execs {
		startExec(t, s, "box", execID)
		endExec(t, s, execID)
	}
	wg.Wait()
	m.compare(t, s, execs...)
}

func TestWhatDoesNotDecodeIsNotMirrored(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	s := open(t, o)
	create(t, s, "good")
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	create(t, s, "bad")
	must(t, s.update(ctx, func(t *txn) error {
		return errors.Join(
			t.stage(op{opPut, bucketDesired, []byte("bad"), []byte("x")}),
			t.stage(op{opPut, prefixExecDesired + "box", []byte("exec-1"), []byte("x")}),
		)
	}))
	s = reopen(t, s)
	m.reset()
	must(t, s.MirrorAll(ctx))
	if m.sandboxes["bad"] != nil || m.sandboxes["good"] == nil || m.sandboxes["box"] == nil || len(m.execs) != 0 {
		t.Errorf("mirrored: %v, %v", m.sandboxes, m.execs)
	}
}

func TestTheMirrorIsHandedExecsThatOthersChange(t *testing.T) {
	o, m := mirrored(t, testOptions(t))
	s := open(t, o)
	makeReady(t, s, "box")
	startExec(t, s, "box", "a")
	startExec(t, s, "box", "b")
	_, err := s.RequestPause(ctx, "box", "")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PAUSED, paused))
	m.compare(t, s, "a", "b")
	_, err = s.Demote(ctx, "box") // cancels both
	must(t, err)
	m.compare(t, s, "a", "b")
	if m.execs["box"]["b"].GetDesired().GetCancelRequestedAt() == 0 {
		t.Error("the cancel is not mirrored")
	}
	list := m.rebuilt()
	o, m = mirrored(t, testOptions(t))
	s = open(t, o)
	adopt(t, s, list...)
	m.compare(t, s, "a", "b")
}
