package store

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

// compactStep is the number of bytes that one transaction of a compaction copies.
const compactStep = 16 << 20

// CompactTo writes every record of the database to a new file at path to, without the free pages, and syncs it. It returns the sizes of
// both files in bytes. No process may have the database open. CompactTo only reads it; check it first with CheckFile, and the copy
// afterwards. A file at to is replaced. Errors: as CheckFile; ErrUnavailable when there is no space.
func (o *Offline) CompactTo(to string) (before, after int64, err error) {
	if err := checkSize(o.path); err != nil {
		return 0, 0, err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, fmt.Errorf("remove an unfinished copy: %w", err)
	}
	src, err := bolt.Open(o.path, 0o600, &bolt.Options{ReadOnly: true, Timeout: checkLockTimeout})
	if err != nil {
		return 0, 0, openError(o.path, err)
	}
	if err := errors.Join(compact(src, to), src.Close()); err != nil {
		return 0, 0, fmt.Errorf("copy the records of %s: %w", o.path, classify(err))
	}
	return sizes(o.path, to)
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

func sizes(a, b string) (int64, int64, error) {
	one, err := os.Stat(a)
	if err != nil {
		return 0, 0, err
	}
	two, err := os.Stat(b)
	if err != nil {
		return 0, 0, err
	}
	return one.Size(), two.Size(), nil
}
