package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/host/disk"
)

// marker is the file Path+".running". It answers two questions before bbolt maps a file that may fault: does another process have the
// store open (flock, held while the store is open), and was the store closed cleanly (the first byte). The byte is markOpen from before
// the file is opened until after it was closed, each synced. markClean is followed by size, time and inode of the closed file: a file
// without marker, or one changed since, is checked like one after an unclean end.
type marker struct {
	f        *os.File
	database string
	text     string
	clean    bool // the database is as the last owner closed it
}

const (
	markOpen  = 'o'
	markClean = 'c'

	markerSuffix = ".running"
	maxMark      = 128

	lockPoll = 10 * time.Millisecond
)

// lockMarker locks the marker. Errors: ErrUnavailable when another process holds it for longer than timeout.
func lockMarker(ctx context.Context, path string, timeout time.Duration) (*marker, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store marker: %w", err)
	}
	m := &marker{f: f, database: strings.TrimSuffix(path, markerSuffix)}
	if err := m.lock(ctx, timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if err = m.read(); err == nil {
		err = disk.Sync(filepath.Dir(path))
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

func (m *marker) read() error {
	b := make([]byte, maxMark)
	n, err := m.f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	m.text = string(b[:n])
	want, err := m.cleanMark()
	m.clean = err == nil && strings.HasPrefix(m.text, want)
	return nil
}

// cleanMark returns the clean mark for the database's current size, time and inode.
func (m *marker) cleanMark() (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(m.database, &st); err != nil {
		return "", fmt.Errorf("stat the store: %w", err)
	}
	return fmt.Sprintf("%c %d %d.%09d %d\n", markClean, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ino), nil
}

// set writes a mark and syncs it. If the mark is markOpen already, as after a crash, it skips the write, because a full disk may refuse it
// where each write needs a new block, as on btrfs.
func (m *marker) set(mark byte) error {
	text := string(mark)
	if mark == markClean {
		var err error
		if text, err = m.cleanMark(); err != nil {
			return err
		}
	}
	if mark != markOpen || !strings.HasPrefix(m.text, text) {
		m.text = "" // not known while the write may have failed
		if _, err := m.f.WriteAt([]byte(text), 0); err != nil {
			return fmt.Errorf("write store marker: %w", err)
		}
		m.text = text
	}
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("sync store marker: %w", err)
	}
	return nil
}

// release unlocks the store for other processes.
func (m *marker) release() error { return m.f.Close() }
