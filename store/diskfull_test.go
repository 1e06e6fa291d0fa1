package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

func init() { children["diskfull"] = inDirectory(fillTheDisk) }

// TestDiskFull runs in a mount namespace of its own, so that the file system disappears with the process.
func TestDiskFull(t *testing.T) {
	t.Parallel() // it waits for another process
	onItsOwnMount(t, "diskfull")
}

// onItsOwnMount runs a child with a directory and a mount namespace of its own.
func onItsOwnMount(t *testing.T, child string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	program := childProgram(t, child)
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), pathEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

func fillTheDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 256<<10), 0o600); err != nil {
		return err
	}
	var fatal error
	o := Options{
		Path: filepath.Join(dir, "ids.db"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFatal: func(err error) { fatal = err },
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	accepted, err := createUntilError(s, 0)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "disk full") {
		return fmt.Errorf("after %d creates: %w", accepted, err)
	}
	fmt.Printf("%d sandboxes, then: %v\n", accepted, err)
	for range 20 { // it stays readable, and full but for what the log frees after a snapshot
		if accepted, err = createUntilError(s, accepted); !errdefs.IsUnavailable(err) {
			return fmt.Errorf("a later create: %w", err)
		}
		if err := readAll(s, accepted); err != nil {
			return err
		}
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	more, err := createUntilError(s, accepted)
	if more <= accepted || !errdefs.IsUnavailable(err) {
		return fmt.Errorf("with space again %d creates, then %w", more-accepted, err)
	}
	fmt.Printf("%d with space again\n", more)
	return errors.Join(fatal, afterwards(s, o, more))
}

// afterwards checks the file and reopens it, still on the full disk.
func afterwards(s *Store, o Options, n int) error {
	if err := s.Close(); err != nil {
		return err
	}
	if err := CheckFile(o.Path); err != nil {
		return err
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return fmt.Errorf("open on a full disk: %w", err)
	}
	return errors.Join(readAll(s, n), s.Close())
}

// createUntilError returns the number of sandboxes at the first error.
func createUntilError(s *Store, from int) (int, error) {
	for i := from; ; i++ {
		if _, err := s.CreateSandbox(context.Background(), boxID(i), "", spec(), nil); err != nil {
			return i, err
		}
	}
}

func readAll(s *Store, n int) error {
	if have := len(s.LiveIDs()); have != n {
		return fmt.Errorf("%d sandboxes, want %d", have, n)
	}
	for i := range n {
		events, err := s.Events(context.Background(), boxID(i), 0, 0)
		if err != nil || len(events) != 1 {
			return fmt.Errorf("%d events of sandbox %d: %w", len(events), i, err)
		}
	}
	return nil
}
