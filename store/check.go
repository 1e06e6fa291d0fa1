package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	// checkTimeout is enough for some 10 GB from a slow disk.
	checkTimeout = 5 * time.Minute
	// checkLockTimeout is short for people who run the check by hand while a daemon runs.
	checkLockTimeout = time.Second
	// maxFindings is how many findings one error lists.
	maxFindings = 5
)

// CheckFile reads the whole file at path without changing it. A damaged file can fault inside bbolt and crash the process, so the daemon
// runs this as a child. Errors: ErrDataLoss with the findings, ErrUnavailable when another process has the file open, ErrNotFound.
func CheckFile(path string) (err error) {
	defer func() {
		if r := recover(); r != nil { // bbolt's assertions
			err = fmt.Errorf("check %s: %v: %w", path, r, errdefs.ErrDataLoss)
		}
	}()
	return viewFile(path, func(tx *bolt.Tx) error {
		err := checkPages(tx)
		if err == nil {
			err = readEverything(tx)
		}
		if err != nil {
			err = fmt.Errorf("check %s: %w", path, err)
		}
		return err
	})
}

// viewFile calls fn with the closed database at path, without changing it.
func viewFile(path string, fn func(*bolt.Tx) error) error {
	if _, err := checkSize(path); err != nil {
		return err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: checkLockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return openError(path, err)
	}
	return errors.Join(db.View(fn), db.Close())
}

// checkSize returns the size of a file. It refuses a missing or empty file, which bbolt would initialize. The store names a file only when it is complete.
func checkSize(path string) (int64, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, fmt.Errorf("check %s: no such file: %w", path, errdefs.ErrNotFound)
	case err != nil:
		return 0, fmt.Errorf("check %s: %w: %w", path, err, errdefs.ErrUnavailable)
	case info.Size() == 0:
		return 0, fmt.Errorf("%s is empty: %w", path, errdefs.ErrDataLoss)
	}
	return info.Size(), nil
}

// tooSmall is the prefix of bbolt's error for a file without room for two meta pages, which has no type.
const tooSmall = "file size too small"

// openError classifies an error of bolt.Open.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("open %s: another process has it open: %w", path, errdefs.ErrUnavailable)
	case errors.Is(err, berrors.ErrInvalid), strings.HasPrefix(err.Error(), tooSmall), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("open %s: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	return fmt.Errorf("open %s: %w: %w", path, err, errdefs.ErrUnavailable)
}

// checkPages runs bbolt's check of every page: references, order, freelist. It first compares the file's size with the pages in use,
// because the bytes behind the end of a truncated file read as zeros up to the end of a page.
func checkPages(tx *bolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return fmt.Errorf("stat the database: %w: %w", err, errdefs.ErrUnavailable)
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it has %d bytes of %d: it was cut: %w", info.Size(), tx.Size(), errdefs.ErrDataLoss)
	}
	var found []string
	more := 0
	for err := range tx.Check() {
		if len(found) == maxFindings {
			more++
			continue
		}
		found = append(found, err.Error())
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s (and %d more): %w", strings.Join(found, "; "), more, errdefs.ErrDataLoss)
}

// readEverything reads every byte of every value: bbolt's check does not read values, and an unreadable page of the disk faults.
func readEverything(tx *bolt.Tx) error {
	var sum byte
	err := tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			for _, c := range v {
				sum ^= c
			}
			return nil
		})
	})
	_ = sum
	return err
}

// ExitNoVerdict is the exit code of a CheckProgram without a verdict: CheckFile returned another error than ErrDataLoss. It is EX_TEMPFAIL
// of sysexits.h.
const ExitNoVerdict = 75

// checkInChild runs program on path, without changing the file. Errors: ErrDataLoss when the child found damage or crashed; ErrUnavailable
// when there is no verdict: the child could not start or reported none, was killed by another process, got no memory or no thread, or
// timed out.
func checkInChild(ctx context.Context, program []string, path string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var out lineWriter
	cmd := exec.CommandContext(ctx, program[0], append(program[1:len(program):len(program)], path)...)
	cmd.Stderr = &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("check %s after an unclean end: %w: %w", path, ctx.Err(), errdefs.ErrUnavailable)
	case !exited, killedFromOutside(exit):
		return fmt.Errorf("check %s after an unclean end: %w: %w", path, err, errdefs.ErrUnavailable)
	case exit.ExitCode() == ExitNoVerdict, isStarved(out.first()):
		return fmt.Errorf("check %s after an unclean end: %s (%w): %w", path, out.first(), exit, errdefs.ErrUnavailable)
	}
	return fmt.Errorf("%s is damaged: %s (%w): %w", path, out.first(), exit, errdefs.ErrDataLoss)
}

// isStarved reports whether the first line of a crashed Go program says that the host gave it no memory or no thread.
func isStarved(line string) bool {
	starved := []string{"out of memory", "cannot allocate memory", "failed to create new OS thread"}
	return slices.ContainsFunc(starved, func(words string) bool { return strings.Contains(line, words) })
}

// killedFromOutside distinguishes kills by the OOM killer and operators from the child's own faults.
func killedFromOutside(exit *exec.ExitError) bool {
	ws, ok := exit.Sys().(syscall.WaitStatus)
	others := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	return ok && ws.Signaled() && slices.Contains(others, ws.Signal())
}

// lineWriter keeps the first maxLine bytes of a child's output.
type lineWriter struct{ buf bytes.Buffer }

const maxLine = 2048

func (w *lineWriter) Write(p []byte) (int, error) {
	if room := maxLine - w.buf.Len(); room > 0 {
		w.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (w *lineWriter) first() string {
	for line := range strings.Lines(w.buf.String()) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return "the check gave no reason"
}
