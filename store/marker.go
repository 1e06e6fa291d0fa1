package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// marker is the file Path+".running". It answers, before bbolt maps a file that may fault, two questions: does another
// process have the store (flock, held for the store's life), and did the last one end cleanly (its one byte). The byte
// is markOpen from before the file is opened until after it was closed, each synced. A file without marker was copied
// here, and is checked like one after an unclean end.
type marker struct {
	f     *os.File
	clean bool // what the last owner left
}

const (
	markOpen  = 'o'
	markClean = 'c'

	lockPoll = 10 * time.Millisecond
)

// takeMarker locks the marker. Errors: ErrUnavailable when another process holds it for longer than timeout.
func takeMarker(ctx context.Context, path string, timeout time.Duration) (*marker, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store marker: %w", err)
	}
	m := &marker{f: f}
	if err := m.lock(ctx, timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if m.clean, err = readMark(f); err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read store marker: %w", err), f.Close())
	}
	return m, nil
}

func (m *marker) lock(ctx context.Context, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		err := syscall.Flock(int(m.f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("another process has this store open: %w", errdefs.ErrUnavailable)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readMark(f *os.File) (clean bool, err error) {
	var b [1]byte
	_, err = f.ReadAt(b[:], 0)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return b[0] == markClean, err
}

func (m *marker) set(mark byte) error {
	if _, err := m.f.WriteAt([]byte{mark}, 0); err != nil {
		return fmt.Errorf("write store marker: %w", err)
	}
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("sync store marker: %w", err)
	}
	return nil
}

// release lets another process have the store.
func (m *marker) release() error { return m.f.Close() }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
