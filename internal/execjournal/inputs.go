package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Prepared reports whether the directories that only a container needs, ctl and out, exist for sandboxID.
func (d *Dir) Prepared(sandboxID string) (bool, error) {
	_, err := os.Lstat(filepath.Dir(d.Paths(sandboxID).Ctl))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the run directory: %w", err)
	}
	return true, nil
}

// RemoveInputs removes ctl and out, and keeps the logs. The container must be gone. Idempotent. Errors: as Remove.
func (d *Dir) RemoveInputs(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return removeTree(filepath.Dir(d.Paths(sandboxID).Ctl), time.Now().Add(removeBudget))
}
