package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

func init() {
	children["check"] = func() int {
		if err := CheckFile(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			if !errdefs.IsDataLoss(err) {
				return ExitNoVerdict
			}
			return 1
		}
		return 0
	}
	children["kill"] = func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
	children["unsure"] = func() int { return ExitNoVerdict }
	children["no memory"] = func() int {
		fmt.Fprintln(os.Stderr, "runtime: out of memory: cannot allocate 8589934592-byte block")
		return 2
	}
	children["no thread"] = func() int {
		fmt.Fprintln(os.Stderr, "runtime: failed to create new OS thread (have 5 already; errno=11)")
		return 2
	}
	children["fault"] = pageFault
	children["never"] = func() int { panic("the check ran") }
}

func TestOpenMakesAPrivateFileWithAnInstance(t *testing.T) {
	s := open(t, testOptions(t))
	id := s.InstanceID()
	if len(id) != 36 {
		t.Fatalf("instance %q", id)
	}
	for path, want := range map[string]os.FileMode{filepath.Dir(s.o.Path): 0o700 | os.ModeDir, s.o.Path: 0o600, s.o.Path + ".running": 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	if s = reopen(t, s); s.InstanceID() != id {
		t.Fatalf("instance changed to %s", s.InstanceID())
	}
}

func TestASecondOpenerGetsAnErrorInTime(t *testing.T) {
	s := open(t, testOptions(t))
	o := s.o
	o.LockTimeout = 50 * time.Millisecond
	if _, err := Open(ctx, o); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	o.LockTimeout = time.Hour
	if _, err := Open(canceled, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestAForeignLockOnTheFileIsNamed(t *testing.T) {
	t.Parallel() // it waits for a lock
	s := open(t, testOptions(t))
	must(t, s.Close())
	db, err := bolt.Open(s.o.Path, 0o600, nil)
	must(t, err)
	defer db.Close()
	o := s.o
	o.LockTimeout = 100 * time.Millisecond
	if _, err := Open(ctx, o); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
	if err := CheckFile(o.Path); !errdefs.IsUnavailable(err) {
		t.Fatalf("check: %v", err)
	}
}

// markUnclean makes the closed store at path look like one whose process was killed.
func markUnclean(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path+".running", []byte{markOpen}, 0o600))
}

func TestOnlyAnUncleanEndIsChecked(t *testing.T) {
	o := testOptions(t)
	o.CheckProgram = childProgram(t, "never")
	s := open(t, o)
	create(t, s, "box")
	s = reopen(t, s)
	must(t, s.Close())
	markUnclean(t, o.Path)
	if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), "the check ran") {
		t.Fatalf("after an unclean end: %v", err)
	}
	must(t, os.Remove(o.Path+".running"))
	if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) {
		t.Fatalf("a file without marker: %v", err)
	}
	o.CheckProgram = childProgram(t, "check")
	markUnclean(t, o.Path)
	if ids := open(t, o).LiveIDs(); len(ids) != 1 {
		t.Fatalf("a good file after an unclean end: %v", ids)
	}
}

// pageFault reads mapped memory beyond the end of a file, as bbolt does where the disk cannot read a page.
func pageFault() int {
	f, err := os.CreateTemp("", "fault")
	if err != nil {
		return ExitNoVerdict
	}
	_ = os.Remove(f.Name())
	data, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return ExitNoVerdict
	}
	return int(data[0])
}

func TestACheckThatDiesOfAFaultFoundDamage(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	markUnclean(t, o.Path)
	o.CheckProgram = childProgram(t, "fault")
	if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), "fault") {
		t.Fatal(err)
	}
}

func TestNoVerdictIsNotDamage(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	for name, program := range map[string][]string{
		"killed from outside": childProgram(t, "kill"),
		"it says so":          childProgram(t, "unsure"),
		"no memory":           childProgram(t, "no memory"),
		"no thread":           childProgram(t, "no thread"),
		"no such program":     {"/does/not/exist"},
	} {
		markUnclean(t, o.Path)
		o.CheckProgram = program
		if _, err := Open(ctx, o); !errdefs.IsUnavailable(err) || errdefs.IsDataLoss(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// damaged creates a store with some content, closes it, lets fn damage the bytes, and returns the options to open it.
func damaged(t *testing.T, fn func(data []byte) []byte) Options {
	t.Helper()
	o := testOptions(t)
	s := open(t, o)
	fill(t, s, 100, func(i int) { makeReady(t, s, boxID(i)) })
	must(t, s.Close())
	data, err := os.ReadFile(o.Path)
	must(t, err)
	must(t, os.WriteFile(o.Path, fn(data), 0o600))
	markUnclean(t, o.Path)
	o.CheckProgram = childProgram(t, "check")
	return o
}

func TestADamagedFileIsRefusedAndLeftAlone(t *testing.T) {
	page := os.Getpagesize()
	cases := map[string]func([]byte) []byte{
		"truncated": func(b []byte) []byte { return b[:20*page] },
		"pages of garbage": func(b []byte) []byte {
			for i := 4 * page; i < len(b); i++ {
				b[i] ^= 0xA5
			}
			return b
		},
		"pages of zeros": func(b []byte) []byte { clear(b[4*page:]); return b },
		"no meta page":   func(b []byte) []byte { clear(b[:2*page]); return b },
		"no bbolt file":  func([]byte) []byte { return []byte("hello") },
		"empty":          func([]byte) []byte { return nil },
	}
	for name, fn := range cases {
		t.Run(name, func(t *testing.T) {
			o := damaged(t, fn)
			before, err := os.ReadFile(o.Path)
			must(t, err)
			_, err = Open(ctx, o)
			if !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), o.Path) {
				t.Fatal(err)
			}
			after, err := os.ReadFile(o.Path)
			if err != nil || string(before) != string(after) {
				t.Fatalf("the file was changed: %v", err)
			}
			if _, err := Open(ctx, o); !errdefs.IsDataLoss(err) {
				t.Fatalf("the second try: %v", err)
			}
		})
	}
}

func TestAnUnfinishedCreateLeavesNothing(t *testing.T) {
	o := testOptions(t)
	must(t, os.MkdirAll(filepath.Dir(o.Path), 0o700))
	must(t, os.WriteFile(o.Path+".new", []byte("half a file"), 0o600))
	create(t, open(t, o), "box")
	if _, err := os.Stat(o.Path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestARestoredCopyIsClosedToOthers(t *testing.T) {
	o := testOptions(t)
	must(t, open(t, o).Close())
	must(t, os.Chmod(o.Path, 0o644))
	open(t, o)
	if info, err := os.Stat(o.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
}
