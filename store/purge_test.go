package store

import (
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestPurgeForgetsAllButTheIDs(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	endExec(t, s, "exec-1")
	if err := s.PurgeSandbox(ctx, "box"); !errdefs.IsFailedPrecondition(err) {
		t.Fatalf("purge of a live one: %v", err)
	}
	deleteIt(t, s, "box")
	changed, stop := s.Watch("box")
	defer stop()
	must(t, s.PurgeSandbox(ctx, "box"))
	if _, open := <-changed; open {
		t.Fatal("watchers are not told")
	}
	_, err := s.Sandbox(ctx, "box")
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox box was not found")
	_, err = s.Exec(ctx, "exec-1")
	refusedFor(t, err, "EXEC_NOT_FOUND", errdefs.ErrNotFound, "exec exec-1 was not found")
	if reserved, err := s.Reserved(ctx, "box"); !reserved || err != nil {
		t.Fatal(reserved, err)
	}
	_, err = s.CreateSandbox(ctx, "box", "", spec(), nil)
	refusedFor(t, err, "SANDBOX_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox_id box already exists")
	if err := s.PurgeSandbox(ctx, "box"); !errdefs.IsNotFound(err) {
		t.Fatalf("second purge: %v", err)
	}
	for bucket := range walk(t, s) {
		switch bucket {
		case bucketMeta, bucketSandboxID, bucketExecID:
		default:
			t.Errorf("bucket %s still holds something", bucket)
		}
	}
}

// walk returns the number of keys of each bucket that is not empty.
func walk(t *testing.T, s *Store) map[string]int {
	t.Helper()
	got := map[string]int{}
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(_, _ []byte) error { got[string(name)]++; return nil })
		})
	}))
	return got
}

func TestAnInterruptedPurgeIsContinued(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	many := make([]*agboxv1.SandboxEvent, 2*purgeBatch+500)
	for i := range many {
		many[i] = serviceEvent()
	}
	report(t, s, "box", many...)
	deleteIt(t, s, "box")
	must(t, s.update(ctx, func(tx *txn) error { return tx.beginPurge("box") }))
	must(t, s.update(ctx, func(tx *txn) error {
		tx.purgeBuckets("box", prefixEvents, prefixExecStatus, prefixExecDesired, prefixExecConfig)
		return nil
	}))
	s = reopen(t, s) // as after a crash here
	if n := walk(t, s)[prefixEvents+"box"]; n == 0 || n > 2*purgeBatch {
		t.Fatalf("%d events left: the test cuts nothing", n)
	}
	if ids := s.LiveIDs(); len(ids) != 0 {
		t.Fatalf("live: %v", ids)
	}
	_, err := s.Events(ctx, "box", 0, 0)
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox box was not found")
	ids, err := s.DeletedBefore(ctx, s.moment(), -time.Hour, 10)
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	must(t, s.PurgeSandbox(ctx, "box"))
	if n := walk(t, s); n[prefixEvents+"box"] != 0 || n[bucketDeletedAt] != 0 || len(s.Corrupt()) != 0 {
		t.Fatalf("%v, %v", n, s.Corrupt())
	}
}
