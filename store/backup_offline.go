package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"github.com/agbox/agbox/internal/host/disk"
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
	as, err := linkAside(o.path, why, now)
	if err != nil {
		return "", fmt.Errorf("keep the present database: %w", err)
	}
	return as, nil
}

// maxAsides within one second; more indicate a fault.
const maxAsides = 100

// linkAside links the file at path to path.why-<UTC time>, with a number if that name exists; "" without a file.
func linkAside(path, why string, now time.Time) (aside string, err error) {
	base := path + "." + why + "-" + now.UTC().Format("20060102T150405Z")
	aside = base
	err = os.Link(path, aside)
	for n := 1; n < maxAsides && errors.Is(err, os.ErrExist); n++ {
		aside = fmt.Sprintf("%s-%d", base, n)
		err = os.Link(path, aside)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return aside, disk.Sync(filepath.Dir(path))
}

// SetAside renames an unusable database to path.damaged-<UTC time>, with a number if that name exists, and returns the new name. It never
// overwrites a file. Without a database it returns "". It leaves the contents unchanged and removes the access of group and others. The
// marker file stays, because it is the lock, and requires a check of the next database at this path. A crash leaves the file under one of
// the names, or both. Errors: ErrUnavailable, also when a process has it open.
func SetAside(path string, now time.Time) (aside string, err error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	o, err := LockOffline(context.Background(), path)
	if err != nil {
		return "", err
	}
	if aside, err = o.moveAside(now); err != nil {
		aside, err = "", fmt.Errorf("set %s aside: %w: %w", path, err, errdefs.ErrUnavailable)
	}
	return aside, errors.Join(err, o.Close())
}

func (o *Offline) moveAside(now time.Time) (string, error) {
	if info, err := os.Lstat(o.path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(o.path, 0o600); err != nil { // env values in it are secrets
			return "", err
		}
	}
	if err := o.mark.set(markOpen); err != nil {
		return "", err
	}
	aside, err := linkAside(o.path, "damaged", now)
	if err != nil || aside == "" {
		return "", err
	}
	return aside, errors.Join(os.Remove(o.path), disk.Sync(filepath.Dir(o.path)))
}

// Install renames the complete database at from, on the same file system, to the path of the Offline. After a crash, either the old or the
// new database is there, whole, and the next daemon checks it before it opens it. Install first removes the log, which belongs to the old
// database. If there is no old database, the log is the only copy of the records, and Install keeps it under another name.
func (o *Offline) Install(from string) error {
	if err := disk.Sync(from); err != nil {
		return fmt.Errorf("sync the new database: %w", err)
	}
	if err := errors.Join(o.mark.set(markOpen), o.dropLog()); err != nil {
		return err
	}
	if err := os.Rename(from, o.path); err != nil {
		return fmt.Errorf("put the new database in place: %w", err)
	}
	if err := disk.Sync(filepath.Dir(o.path)); err != nil {
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

// compactStep is the number of bytes that one transaction of a compaction copies.
const compactStep = 16 << 20

// CompactTo writes every record of the database to a new file at path to, without the free pages, and syncs it. It returns the sizes of
// both files in bytes. No process may have the database open. CompactTo only reads it; check it first with CheckFile, and the copy
// afterwards. A file at to is replaced. Errors: as CheckFile; ErrUnavailable when there is no space.
func (o *Offline) CompactTo(to string) (before, after int64, err error) {
	if before, err = checkSize(o.path); err != nil {
		return 0, 0, err
	}
	if err := disk.Remove(to); err != nil {
		return 0, 0, fmt.Errorf("remove an unfinished copy: %w", err)
	}
	src, err := bolt.Open(o.path, 0o600, &bolt.Options{ReadOnly: true, Timeout: checkLockTimeout})
	if err != nil {
		return 0, 0, openError(o.path, err)
	}
	if err := errors.Join(compact(src, to), src.Close()); err != nil {
		return 0, 0, fmt.Errorf("copy the records of %s: %w", o.path, classify(err))
	}
	after, err = checkSize(to)
	return before, after, err
}

func compact(src *bolt.DB, to string) error {
	// Not synced after each step: an unfinished copy is useless.
	dst, err := bolt.Open(to, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = bolt.Compact(dst, src, compactStep)
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}
