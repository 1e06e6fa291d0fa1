package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

func TestOnlyAWriteWithoutSpaceIsADiskFull(t *testing.T) {
	pathError := func(op string, err error) error { return &fs.PathError{Op: op, Path: "ids.db", Err: err} }
	cases := []struct {
		name string
		err  error
		want bool
	}{
		{"no space", pathError("write", syscall.ENOSPC), true},
		{"quota", pathError("write", syscall.EDQUOT), true},
		{"file size limit", fmt.Errorf("commit: %w", pathError("write", syscall.EFBIG)), true},
		{"a bad disk", pathError("write", syscall.EIO), false},
		{"no space in a sync: what is written is unknown", syscall.ENOSPC, false},
		{"another operation", pathError("truncate", syscall.ENOSPC), false},
		{"growing the file", errors.New("file resize error: " + pathError("truncate", syscall.ENOSPC).Error()), true},
		{"growing the file beyond a limit", errors.New("file resize error: " + pathError("truncate", syscall.EFBIG).Error()), true},
		{"growing the file on a bad disk", errors.New("file resize error: " + pathError("truncate", syscall.EIO).Error()), false},
		{"the sync of a grown file", errors.New("file sync error: " + syscall.ENOSPC.Error()), false},
		{"nothing", nil, false},
	}
	for _, c := range cases {
		if got := isDiskFull(c.err); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestALackOfSpaceThatTheMetaPageContradictsIsFatal(t *testing.T) {
	o := testOptions(t)
	fatal := 0
	o.OnFatal = func(error) { fatal++ }
	lie := false
	o.commit = func(tx *bolt.Tx) error {
		err := tx.Commit()
		if lie && err == nil {
			return &fs.PathError{Op: "write", Path: "ids.db", Err: syscall.ENOSPC}
		}
		return err
	}
	s := open(t, o)
	create(t, s, "box")
	lie = true
	_, err := s.CreateSandbox(ctx, "unsure", "", spec(), nil)
	if !errdefs.IsUnavailable(err) || fatal != 1 {
		t.Fatalf("%v, fatal %d times", err, fatal)
	}
	if _, err := s.Reserved(ctx, "unsure"); !errdefs.IsUnavailable(err) {
		t.Fatalf("a read of what may be lost: %v", err)
	}
}

func TestALackOfSpaceSpoilsNothing(t *testing.T) {
	o := testOptions(t)
	full := false
	var observed []error
	o.Observe = func(_ time.Duration, _ int, err error) { observed = append(observed, err) }
	o.commit = func(tx *bolt.Tx) error {
		if full {
			_ = tx.Rollback()
			return &fs.PathError{Op: "write", Path: "ids.db", Err: syscall.ENOSPC}
		}
		return tx.Commit()
	}
	s := open(t, o)
	full = true
	if _, err := s.CreateSandbox(ctx, "box", "web", spec(), nil); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "disk full") {
		t.Fatal(err)
	}
	if _, held := heldBy(s, "web"); held || len(s.LiveIDs()) != 0 {
		t.Fatal("the index shows what is not in the file")
	}
	full = false
	_, err := s.CreateSandbox(ctx, "box", "web", spec(), nil)
	must(t, err)
	if len(observed) != 2 || observed[0] == nil || observed[1] != nil {
		t.Fatalf("%v", observed)
	}
}

// TestReadersAndWritersTogether is for the race detector.
func TestReadersAndWritersTogether(t *testing.T) {
	s := open(t, testOptions(t))
	done := make(chan struct{})
	var readers sync.WaitGroup
	read := func(fn func()) {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					fn()
				}
			}
		})
	}
	read(func() {
		list, err := s.List(ctx, Filter{IncludeDeleted: true})
		must(t, err)
		for _, sb := range list { // each must be readable, at least up to the listed sequence
			events, err := s.Events(ctx, sb.ID, 0, 0)
			if err != nil && !errdefs.IsNotFound(err) || err == nil && uint64(len(events)) < sb.LastSequence {
				t.Errorf("%d events of %+v: %v", len(events), sb, err)
			}
		}
	})
	read(func() {
		for _, execID := range s.ActiveExecs("") {
			if _, err := s.Exec(ctx, execID); err != nil && !errdefs.IsNotFound(err) {
				t.Error(err)
			}
		}
		s.CountByState()
		heldBy(s, "web")
	})
	fill(t, s, 200, func(i int) {
		id := boxID(i)
		changed, stop := s.Watch(id)
		defer stop()
		makeReady(t, s, id)
		<-changed
		startExec(t, s, id, "exec-"+id)
		endExec(t, s, "exec-"+id)
		deleteIt(t, s, id)
		if i%2 == 0 {
			must(t, s.PurgeSandbox(ctx, id))
		}
	})
	close(done)
	readers.Wait()
	if c := s.Corrupt(); len(c) > 0 {
		t.Fatalf("%v", c)
	}
	if err := errors.Join(s.Close(), CheckFile(s.o.Path)); err != nil {
		t.Fatal(err)
	}
}
