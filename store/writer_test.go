package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// gate lets a test block the writer inside its commits until the test opens the gate.
type gate struct {
	entered chan struct{} // receives once for the blocked commit
	opened  chan struct{}
}

func gated(o Options) (Options, *gate) {
	g := &gate{entered: make(chan struct{}, 1), opened: make(chan struct{})}
	o.commit = func(tx *bolt.Tx) error {
		select {
		case g.entered <- struct{}{}:
		default: // no test waits for later commits
		}
		<-g.opened
		return tx.Commit()
	}
	return o, g
}

// open lets this and all later commits continue.
func (g *gate) open() { close(g.opened) }

// queued waits until n requests wait for the writer.
func queued(t *testing.T, s *Store, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); len(s.queue) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests queued, want %d", len(s.queue), n)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestQueuedWritesShareOneCommit(t *testing.T) {
	o, g := gated(testOptions(t))
	var commits, writes atomic.Int32
	o.Observe = func(_ time.Duration, n int, err error) { commits.Add(1); writes.Add(int32(n)) }
	s := open(t, o)
	var wg sync.WaitGroup
	wg.Go(func() { create(t, s, "first") })
	<-g.entered
	const many = 100
	for i := range many {
		wg.Go(func() { create(t, s, boxID(i)) })
	}
	queued(t, s, many)
	g.open()
	wg.Wait()
	if commits.Load() != 2 || writes.Load() != many+1 {
		t.Fatalf("%d writes in %d commits", writes.Load(), commits.Load())
	}
}

func TestARefusedWriteDoesNotFailItsGroup(t *testing.T) {
	o, g := gated(testOptions(t))
	s := open(t, o)
	var wg sync.WaitGroup
	wg.Go(func() { create(t, s, "first") })
	<-g.entered
	var refused, accepted atomic.Int32
	for range 50 { // all use one ID and one name; the later ones in the group see the first
		wg.Go(func() {
			_, err := s.CreateSandbox(ctx, "same", "name", spec(), nil)
			switch {
			case err == nil:
				accepted.Add(1)
			case errdefs.IsAlreadyExists(err):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	for i := range 10 {
		wg.Go(func() { create(t, s, boxID(i)) })
	}
	wg.Go(func() { // stages several ops before it fails
		err := s.update(ctx, func(t *txn) error {
			half := &Sandbox{ID: "half", Name: "half", Spec: spec(), Desired: &storev1.Desired{Name: "half"}, Progress: &storev1.Progress{}}
			return errors.Join(t.create(half, Caller{}), errdefs.ErrAborted)
		})
		if !errdefs.IsAborted(err) {
			t.Error(err)
		}
	})
	queued(t, s, 61)
	g.open()
	wg.Wait()
	if accepted.Load() != 1 || refused.Load() != 49 {
		t.Fatalf("%d accepted, %d refused", accepted.Load(), refused.Load())
	}
	if n := len(s.LiveIDs()); n != 12 {
		t.Fatalf("%d sandboxes", n)
	}
	if reserved, err := s.Reserved(ctx, "half"); reserved || err != nil {
		t.Fatal("a refused request left something", err)
	}
	create(t, s, "half")
}

func TestAContextThatEndsInTheQueueMeansNothingHappened(t *testing.T) {
	o, g := gated(testOptions(t))
	s := open(t, o)
	var wg sync.WaitGroup
	wg.Go(func() { create(t, s, "first") })
	<-g.entered
	short, cancel := context.WithCancel(ctx)
	errs := make(chan error, 1)
	go func() { _, err := s.CreateSandbox(short, "box", "", spec(), nil); errs <- err }()
	queued(t, s, 1)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	g.open()
	wg.Wait()
	create(t, s, "box")
}

func TestTheWriterFinishesARequestThatItReceived(t *testing.T) {
	o, g := gated(testOptions(t))
	s := open(t, o)
	short, cancel := context.WithCancel(ctx)
	errs := make(chan error, 1)
	go func() { _, err := s.CreateSandbox(short, "box", "", spec(), nil); errs <- err }()
	<-g.entered
	cancel()
	select {
	case err := <-errs:
		t.Fatalf("answered before the commit: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	g.open()
	if err := <-errs; err != nil {
		t.Fatalf("committed, but the caller hears %v", err)
	}
}

func TestUnsyncedWritesAreNotReadable(t *testing.T) {
	o := testOptions(t)
	visible, leave := make(chan struct{}), make(chan struct{})
	o.commit = func(tx *bolt.Tx) error {
		err := tx.Commit() // in the file; for the writer the last sync is still in progress
		visible <- struct{}{}
		<-leave
		return err
	}
	s := open(t, o)
	created := make(chan error, 1)
	go func() { _, err := s.CreateSandbox(ctx, "box", "", spec(), nil); created <- err }()
	<-visible
	read := make(chan bool, 1)
	go func() { reserved, _ := s.Reserved(ctx, "box"); read <- reserved }()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.Reserved(short, "box"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a reader saw an unfinished commit: %v", err)
	}
	select {
	case <-read:
		t.Fatal("a reader saw an unfinished commit")
	default:
	}
	leave <- struct{}{}
	must(t, <-created)
	if !<-read {
		t.Fatal("the waiting reader does not see the commit")
	}
}

func TestCloseCommitsWhatIsQueued(t *testing.T) {
	o, g := gated(testOptions(t))
	s := open(t, o)
	var wg sync.WaitGroup
	wg.Go(func() { create(t, s, "first") })
	<-g.entered
	const many = 20
	for i := range many {
		wg.Go(func() { create(t, s, boxID(i)) })
	}
	queued(t, s, many)
	g.open()
	must(t, s.Close())
	wg.Wait()
	if _, err := s.CreateSandbox(ctx, "late", "", spec(), nil); !errdefs.IsUnavailable(err) {
		t.Fatalf("write after close: %v", err)
	}
	if _, err := s.Reserved(ctx, "first"); !errdefs.IsUnavailable(err) {
		t.Fatalf("read after close: %v", err)
	}
	o.commit = nil
	if n := len(open(t, o).LiveIDs()); n != many+1 {
		t.Fatalf("%d sandboxes after reopen", n)
	}
}

func TestAFailedSyncIsFatal(t *testing.T) {
	o := testOptions(t)
	broken := errors.New("input/output error")
	var fatal []error
	o.OnFatal = func(err error) { fatal = append(fatal, err) }
	fail := false
	o.commit = func(tx *bolt.Tx) error {
		if fail {
			_ = tx.Rollback()
			return broken // as fdatasync returns it: no *fs.PathError
		}
		return tx.Commit()
	}
	s := open(t, o)
	create(t, s, "box")
	fail = true
	_, err := s.CreateSandbox(ctx, "lost", "", spec(), nil)
	if !errdefs.IsUnavailable(err) || len(fatal) != 1 || !errors.Is(fatal[0], broken) {
		t.Fatalf("%v, %v", err, fatal)
	}
	fail = false
	if _, err := s.CreateSandbox(ctx, "later", "", spec(), nil); !errdefs.IsUnavailable(err) || len(fatal) != 1 {
		t.Fatalf("a write after the fatal one: %v, %v", err, fatal)
	}
	if sb, err := s.Sandbox(ctx, "box"); err != nil || sb.State != pending {
		t.Fatalf("what was there is not readable: %v", err)
	}
	must(t, s.Close())
	if m, err := lockMarker(ctx, o.Path+".running", 0); err != nil || m.clean {
		t.Fatalf("a fatal error counts as a clean end: %v", err)
	} else {
		must(t, m.release())
	}
}

// TestARequestFailsWithItsFirstErrorOfStaging: also if it goes on and returns nil. Nothing of it is written.
func TestARequestFailsWithItsFirstErrorOfStaging(t *testing.T) {
	s := open(t, testOptions(t))
	for name, stage := range map[string]func(*txn){
		"a key that is empty":          func(tx *txn) { tx.putInt(bucketUnswept, "", 1) },
		"a key that is too long":       func(tx *txn) { tx.delete(bucketUnswept, strings.Repeat("x", bolt.MaxKeySize+1)) },
		"a record that is too large":   func(tx *txn) { tx.stage(putOp(bucketUnswept, []byte("x"), make([]byte, maxValueBytes+1))) },
		"a record that is no protobuf": func(tx *txn) { tx.put(bucketNames, "x", &storev1.NameRef{SandboxId: "\xff"}) },
	} {
		err := s.update(ctx, func(tx *txn) error {
			stage(tx)
			tx.putInt(bucketUnswept, "box", 1)
			return nil
		})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if there, err := s.Unswept(ctx, "box"); there || err != nil {
		t.Errorf("a refused request was written: %t, %v", there, err)
	}
}
