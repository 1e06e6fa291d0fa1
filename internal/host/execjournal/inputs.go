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

// Prepared reports whether there is anything for sandboxID that only a container needs, ctl and out above all. Records
// do not count.
func (d *Dir) Prepared(sandboxID string) (bool, error) {
	ctl := d.Paths(sandboxID).Ctl
	_, err := os.Lstat(ctl)
	if errors.Is(err, fs.ErrNotExist) {
		return halfPrepared(filepath.Dir(ctl))
	}
	if err != nil {
		return false, fmt.Errorf("look at the run directory: %w", err)
	}
	return true, nil
}

// halfPrepared tells what a crash left half made or half removed from a directory that is there for its records only.
func halfPrepared(run string) (bool, error) {
	fd, err := openDir(run)
	var refused refusedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.As(err, &refused): // no directory: there is something, and the removal will say what
		return true, nil
	case err != nil:
		return false, err
	}
	defer unix.Close(fd)
	return true, nil
}

// RemoveInputs removes ctl and out, and keeps logs. The container must be gone. Idempotent. Errors: as Remove.
func (d *Dir) RemoveInputs(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return removeTree(filepath.Dir(d.Paths(sandboxID).Ctl), time.Now().Add(removeBudget))
}
