// Package lockfile keeps a second daemon from using the same files.
package lockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning is returned if another agboxd holds the lock.
var ErrRunning = errors.New("another agboxd is running")

// Acquire acquires the lock file for the life of the process, before agboxd changes any other file. The kernel releases the lock when the
// process ends for any reason; the file stays.
func Acquire(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the runtime directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := flockWithin(int(f.Fd()), patience); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (pid %s, lock %s): stop it first, or give this one another XDG_RUNTIME_DIR and XDG_DATA_HOME",
				ErrRunning, holder(path), path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The pid is only for error messages, so a full disk does not prevent the start.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}

// patience is how long Acquire waits for a dying agboxd: the kernel releases the lock with the end of the process, some time after kill -9
// has returned.
const (
	patience = 2 * time.Second
	retry    = 20 * time.Millisecond
)

func flockWithin(fd int, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(retry) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

func holder(path string) string {
	pid, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(pid)) == "" {
		return "unknown"
	}
	return strings.TrimSpace(string(pid))
}
