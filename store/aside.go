package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
)

// SetAside renames an unusable database to path.damaged-<UTC time>, with a number if that name exists, and returns the new name. It never
// overwrites a file. Without a database it returns "". It leaves the contents unchanged and removes the access of group and others. The
// marker file stays, because it is the lock, and requires a check of the next database at this path. A crash leaves the file under one of
// the names, or both. Errors: ErrUnavailable, also when a process has it open.
func SetAside(path string, now time.Time) (aside string, err error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	mark, err := lockMarker(context.Background(), path+markerSuffix, defaultLockTimeout)
	if err != nil {
		return "", err
	}
	if aside, err = setAside(path, mark, now); err != nil {
		err = fmt.Errorf("set %s aside: %w: %w", path, err, errdefs.ErrUnavailable)
	}
	return aside, errors.Join(err, mark.release())
}

func setAside(path string, mark *marker, now time.Time) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) { // another process was faster
		return "", nil
	}
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(path, 0o600) // env values in it are secrets
	}
	if err != nil {
		return "", err
	}
	if err := mark.set(markOpen); err != nil {
		return "", err
	}
	aside, err := linkAside(path, path+".damaged-"+now.UTC().Format("20060102T150405Z"))
	if err != nil {
		return "", err
	}
	if err := os.Remove(path); err != nil {
		return "", err
	}
	return aside, syncDir(filepath.Dir(path))
}

// maxAsides within one second; more indicate a fault.
const maxAsides = 100

func linkAside(path, base string) (aside string, err error) {
	aside = base
	for n := 1; n <= maxAsides; n++ {
		if err = os.Link(path, aside); !errors.Is(err, os.ErrExist) {
			return aside, err
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	return "", err
}
