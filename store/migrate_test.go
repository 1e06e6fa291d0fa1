package store

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

func TestANewerFileIsRefusedAndNotChanged(t *testing.T) {
	o := testOptions(t)
	o.migrations = []migration{{to: 7, apply: func(*bolt.Tx) error { return nil }}}
	must(t, open(t, o).Close())
	before, err := os.ReadFile(o.Path)
	must(t, err)
	o.migrations = nil
	_, err = Open(ctx, o)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "version 7") ||
		!strings.Contains(err.Error(), "up to 1") || !strings.Contains(err.Error(), "written by a newer agboxd") {
		t.Fatal(err)
	}
	after, err := os.ReadFile(o.Path)
	if err != nil || string(before) != string(after) {
		t.Fatalf("the file was changed: %v", err)
	}
}

// steps returns two migrations that leave a trace.
func steps() []migration {
	trace := func(what string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("trace"))
			if err != nil {
				return err
			}
			n, err := b.NextSequence()
			if err != nil {
				return err
			}
			return b.Put(encodeInt(n), []byte(what))
		}
	}
	return []migration{{to: 2, apply: trace("two")}, {to: 5, apply: trace("five")}}
}

func traceOf(t *testing.T, s *Store) (trace []string) {
	t.Helper()
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("trace")).ForEach(func(_, v []byte) error { trace = append(trace, string(v)); return nil })
	}))
	return trace
}

func TestAnOldFileMigratesStepByStepOnce(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	create(t, s, "box")
	must(t, s.Close())
	o.migrations = steps()
	s = open(t, o)
	s = reopen(t, s)
	if got := traceOf(t, s); strings.Join(got, " ") != "two five" {
		t.Fatalf("%v", got)
	}
	if v, err := readSchema(s.db); v != 5 || err != nil {
		t.Fatalf("schema %d, %v", v, err)
	}
	get1(t, s, "box")
}

func TestAMigrationThatFailsIsGoneOnFrom(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	o.migrations = steps()
	works := o.migrations[1].apply
	o.migrations[1].apply = func(tx *bolt.Tx) error {
		if err := works(tx); err != nil {
			return err
		}
		return errdefs.ErrInternal
	}
	if _, err := Open(ctx, o); !errdefs.IsInternal(err) {
		t.Fatal(err)
	}
	o.migrations[1].apply = works
	if got := traceOf(t, open(t, o)); strings.Join(got, " ") != "two five" {
		t.Fatalf("%v", got)
	}
}

func TestAFileWithoutVersionIsNotOurs(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	db, err := bolt.Open(o.Path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketMeta)) }))
	must(t, db.Close())
	if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) {
		t.Fatal(err)
	}
}
