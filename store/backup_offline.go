package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/store/internal/txlog"
)

// Offline is the right to replace a database that no process has open. Its lock is next to the file, so it also excludes a daemon that
// reaches the data directory by another path.
type Offline struct {
	path string
	mark *marker
}

// LockOffline keeps every daemon from opening the database at path until Close. The file need not exist; its directory must. Errors:
// ErrUnavailable when a process has it open.
func LockOffline(ctx context.Context, path string) (*Offline, error) {
	mark, err := lockMarker(ctx, path+markerSuffix, defaultLockTimeout)
	if err != nil {
		return nil, err
	}
	return &Offline{path, mark}, nil
}

// Close lets daemons open the database again.
func (o *Offline) Close() error { return o.mark.release() }

// SetAside links the database to a second name, path.why-<UTC time>, which keeps it when another one replaces it, and returns that name.
// Without a database it returns "".
func (o *Offline) SetAside(why string, now time.Time) (string, error) {
	if _, err := os.Lstat(o.path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	base := o.path + "." + why + "-" + now.UTC().Format("20060102T150405Z")
	as := base
	err := os.Link(o.path, as)
	for n := 2; errors.Is(err, os.ErrExist) && n < 100; n++ {
		as = fmt.Sprintf("%s-%d", base, n)
		err = os.Link(o.path, as)
	}
	if err == nil {
		err = syncDir(filepath.Dir(o.path))
	}
	if err != nil {
		return "", fmt.Errorf("keep the present database: %w", err)
	}
	return as, nil
}

// Install renames the complete database at from, on the same file system, to the path of the Offline. After a crash, either the old or the
// new database is there, whole, and the next daemon checks it before it opens it. Install first removes the log, which belongs to the old
// database. If there is no old database, the log is the only copy of the records, and Install keeps it under another name.
func (o *Offline) Install(from string) error {
	if err := syncFile(from); err != nil {
		return fmt.Errorf("sync the new database: %w", err)
	}
	if err := errors.Join(o.mark.set(markOpen), o.dropLog()); err != nil {
		return err
	}
	if err := os.Rename(from, o.path); err != nil {
		return fmt.Errorf("put the new database in place: %w", err)
	}
	if err := syncDir(filepath.Dir(o.path)); err != nil {
		return fmt.Errorf("sync the data directory: %w", err)
	}
	return nil
}

func (o *Offline) dropLog() error {
	if _, err := os.Lstat(o.path); errors.Is(err, os.ErrNotExist) {
		return keepLog(LogDir(o.path), "before-restore", time.Now())
	}
	return txlog.Remove(LogDir(o.path))
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// CheckSchema returns an error if this program cannot read databases of this schema version. Errors: ErrFailedPrecondition.
func CheckSchema(version uint64) error {
	if newest := newestSchema(migrations); version > newest {
		return fmt.Errorf("its schema version is %d and this agboxd knows up to %d: it is of a newer agboxd: %w", version, newest, errdefs.ErrFailedPrecondition)
	}
	return nil
}
