package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Prepared reports whether files exist for sandboxID that only a container needs, such as ctl and out. Records do not count.
func (d *Dir) Prepared(sandboxID string) (bool, error) {
	ctl := d.Paths(sandboxID).Ctl
	_, err := os.Lstat(ctl)
	if errors.Is(err, fs.ErrNotExist) {
		return halfPrepared(filepath.Dir(ctl))
	}
	if err != nil {
		return false, fmt.Errorf("stat the run directory: %w", err)
	}
	return true, nil
}

// halfPrepared distinguishes a directory that a crash left partly created or removed from one that exists for its records only.
func halfPrepared(run string) (bool, error) {
	fd, err := openDir(run)
	var refused refusedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.As(err, &refused): // not a directory: something exists, and the removal will report it
		return true, nil
	case err != nil:
		return false, err
	}
	defer unix.Close(fd)
	return true, nil
}

// RemoveInputs removes ctl and out, and keeps logs. The container must have been removed. Idempotent. Errors: as Remove.
func (d *Dir) RemoveInputs(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return removeTree(filepath.Dir(d.Paths(sandboxID).Ctl), time.Now().Add(removeBudget))
}
