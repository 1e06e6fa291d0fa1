package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Prepared reports whether anything exists that RemoveInputs removes, also what a crash left partly created or removed.
func (d *Dir) Prepared(sandboxID string) (bool, error) {
	_, err := os.Lstat(filepath.Dir(d.Paths(sandboxID).Ctl))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err == nil, nil
	}
	return false, fmt.Errorf("stat the run directory: %w", err)
}

// RemoveInputs removes ctl and out, and keeps logs. The container must have been removed. Idempotent. Errors: as Remove.
func (d *Dir) RemoveInputs(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return removeTree(filepath.Dir(d.Paths(sandboxID).Ctl), time.Now().Add(removeBudget))
}
