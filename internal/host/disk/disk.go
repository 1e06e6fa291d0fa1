// Package disk holds what the database, its log and its backups need from the file system: durable names, and disk space kept allocated.
package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sync makes the names in a directory, or the content of a file, survive a power failure.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Remove removes a file, if it exists.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Replace writes body to a file. It does not touch a file with that content, so that needs no free space. It
// replaces any other file atomically: after a crash the file is the old one or the new one.
func Replace(path string, body []byte, mode os.FileMode) error {
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, body) {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails after the rename
	_, err = tmp.Write(body)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Reserve keeps blocks of a file allocated after its used part, so that writes succeed on a full disk. One goroutine at a time may use it.
//
// Allocating changes neither the content nor the length of the file, so a crash at any moment needs no repair, and a later call skips
// allocated blocks.
type Reserve struct {
	File *os.File
	// Bytes to keep allocated; below 1: none.
	Bytes int64
	// End of the allocated part.
	End int64

	retryAt time.Time
}

// retryPause is the pause after an allocation that found no space, and smallest the smallest allocation that Extend tries.
const (
	retryPause = time.Second
	smallest   = 4 << 10
)

// Extend allocates ahead of the used part, in steps of half the reserve. If the disk lacks space, it allocates as much as fits. It never
// fails: on a file system that cannot allocate there is no reserve.
func (r *Reserve) Extend(used int64) {
	if r.Bytes <= 0 || r.End >= used+r.Bytes/2 || time.Now().Before(r.retryAt) {
		return
	}
	target := used + r.Bytes
	for ahead := target - r.End; ahead >= smallest; ahead /= 2 {
		switch err := unix.Fallocate(int(r.File.Fd()), unix.FALLOC_FL_KEEP_SIZE, r.End, ahead); {
		case err == nil:
			if r.End += ahead; r.End >= target {
				return
			}
		case errors.Is(err, syscall.EOPNOTSUPP):
			r.Bytes = 0
			return
		}
	}
	r.retryAt = time.Now().Add(retryPause)
}

// Again makes the next Extend try at once, because space was freed.
func (r *Reserve) Again() { r.retryAt = time.Time{} }
