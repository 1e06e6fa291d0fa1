package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

func init() { children["reserve"] = inDirectory(useTheReserve) }

// TestTheReserveOutlivesAFullDisk runs in a mount namespace of its own.
func TestTheReserveOutlivesAFullDisk(t *testing.T) {
	t.Parallel() // it waits for another process
	onItsOwnMount(t, "reserve")
}

const (
	testReserve = 1 << 20
	// leastWithin is far below the capacity of a reserve of that size: each create below grows the file by at most one page, and reuses
	// several more.
	leastWithin = 100
)

func useTheReserve(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		return err
	}
	var fatal error
	rooms := 0
	o := Options{
		Path: filepath.Join(dir, "ids.db"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFatal: func(err error) { fatal = err }, ReserveBytes: testReserve,
		MakeRoom: func() bool { rooms++; return os.Remove(ballast) == nil },
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	if err := fillUp(filepath.Join(dir, "filler")); err != nil {
		return err
	}
	within := 0
	for ; rooms == 0; within++ {
		if _, err := s.CreateSandbox(context.Background(), boxID(within), "", spec(), nil); err != nil {
			return fmt.Errorf("after %d creates on a full disk: %w", within, err)
		}
	}
	if within < leastWithin {
		return fmt.Errorf("the reserve held %d creates", within)
	}
	all, err := createUntilError(s, within)
	if !errdefs.IsUnavailable(err) || all-within < leastWithin/2 {
		return fmt.Errorf("the ballast held %d creates, then %w", all-within, err)
	}
	fmt.Printf("%d creates in the reserve, %d in the ballast\n", within, all-within)
	return errors.Join(fatal, afterwards(s, o, all))
}

func fillUp(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}

func TestACommitIsRetriedOnceTheDiskHasSpace(t *testing.T) {
	for _, reason := range noSpace {
		o := testOptions(t)
		refusals, rooms := 0, 0 // how many commits the disk still refuses; how often MakeRoom was called
		o.commit = func(tx *bolt.Tx) error {
			if refusals == 0 {
				return tx.Commit()
			}
			refusals--
			return errors.Join(&fs.PathError{Op: "write", Path: o.Path, Err: reason}, tx.Rollback())
		}
		o.MakeRoom = func() bool { rooms++; return true }
		s := open(t, o)
		for i, n := range []int{1, 3} { // in the second round, another writer took the space twice
			refusals, rooms = n, 0
			if _, err := s.CreateSandbox(ctx, boxID(i), "", spec(), nil); err != nil || rooms != n {
				t.Fatalf("%v: %v, room was made %d times, want %d", reason, err, rooms, n)
			}
		}
		refusals, rooms = roomTries+1, 0 // the disk stays full
		if _, err := s.CreateSandbox(ctx, boxID(2), "", spec(), nil); !errdefs.IsUnavailable(err) || rooms != roomTries {
			t.Fatalf("%v: %v, room was made %d times", reason, err, rooms)
		}
		refusals = 1
		s.o.MakeRoom = func() bool { return false }
		if _, err := s.CreateSandbox(ctx, boxID(2), "", spec(), nil); !errdefs.IsUnavailable(err) {
			t.Fatalf("%v: %v without room", reason, err)
		}
		if _, err := s.CreateSandbox(ctx, boxID(2), "", spec(), nil); err != nil {
			t.Fatal(err)
		}
		s = reopen(t, s)
		must(t, readAll(s, 3))
	}
}

// TestAReserveIsNoContent: allocating ahead changes neither length nor content, so a backup, a check and an older daemon see the same
// file.
func TestAReserveIsNoContent(t *testing.T) {
	o := testOptions(t)
	o.ReserveBytes = 4 << 20
	s := open(t, o)
	var st syscall.Stat_t
	must(t, syscall.Stat(o.Path, &st))
	if st.Blocks*512 < o.ReserveBytes {
		t.Errorf("it holds %d bytes of disk, want %d", st.Blocks*512, o.ReserveBytes)
	}
	if st.Size >= o.ReserveBytes {
		t.Errorf("its length is %d", st.Size)
	}
	must(t, s.Close())
	must(t, CheckFile(o.Path))
}
