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

// Offline is the right to replace a database that nobody has open. It lies with the file: who names the data directory
// differently for the daemon's own lock is kept out too.
type Offline struct {
	path string
	mark *marker
}

// TakeOffline keeps every daemon away from the database at path until Close. The file need not exist, its directory must.
// Errors: ErrUnavailable when a process has it open.
func TakeOffline(ctx context.Context, path string) (*Offline, error) {
	mark, err := takeMarker(ctx, path+markerSuffix, defaultLockTimeout)
	if err != nil {
		return nil, err
	}
	return &Offline{path, mark}, nil
}

// Close lets daemons in again.
func (o *Offline) Close() error { return o.mark.release() }

// Keep gives the database a second name beside its own, path.why-<UTC time>, under which it stays when another one takes its
// place, and returns that name. Without a database it returns "".
func (o *Offline) Keep(why string, now time.Time) (string, error) {
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

// Install gives the complete database at from, on the same file system, the name of the one here. After a crash there is the
// old one or the new one, whole, and the next daemon checks it before it opens it.
// The log is removed first, as it is of the database that was here; without one it is all that is left, and is kept under another name.
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

// CheckSchema refuses the schema version of a database that this program can't read. Errors: ErrFailedPrecondition.
func CheckSchema(version uint64) error {
	if newest := newestSchema(migrations); version > newest {
		return fmt.Errorf("its schema version is %d and this agboxd knows up to %d: it is of a newer agboxd: %w", version, newest, errdefs.ErrFailedPrecondition)
	}
	return nil
}
