package execjournal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agbox/agbox/internal/execid"
)

// Release lets PID 1 start the main process and execs, in this run. Idempotent. Errors: invalid argument; not found
// before Prepare; unavailable.
func (d *Dir) Release(sandboxID string) error {
	return d.put(sandboxID, execid.Main, "release", ReleaseName, nil)
}

// Released reports whether PID 1 was released in this run. Errors: invalid argument; unavailable.
func (d *Dir) Released(sandboxID string) (bool, error) {
	return marked(sandboxID, d.execDir(sandboxID), ReleaseName)
}

// marked reports whether a file of a sandbox exists. Errors: invalid argument; unavailable.
func marked(sandboxID, dir, name string) (bool, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return false, err
	}
	_, err := os.Lstat(filepath.Join(dir, name))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err == nil, nil
	}
	return false, unavailablef("stat %s: %w", name, err)
}

// Withhold reverts Release, so that PID 1 of the next run waits for another one, and clears Terminated. Call it
// while the container does not run. Idempotent.
func (d *Dir) Withhold(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(d.Paths(sandboxID).Logs, TerminatedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailablef("remove %s: %w", TerminatedName, err)
	}
	if err := d.forgetProof(sandboxID); err != nil {
		return err
	}
	return d.unlink(sandboxID, ReleaseName, PrivateName, NamelessName)
}

// Terminated reports whether PID 1 recorded a TERM in its present or last run. The sandbox's root can forge it.
// Errors: invalid argument; unavailable.
func (d *Dir) Terminated(sandboxID string) (bool, error) {
	return marked(sandboxID, d.Paths(sandboxID).Logs, TerminatedName)
}
