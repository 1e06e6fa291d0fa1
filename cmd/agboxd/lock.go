package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errRunning is returned if another agboxd holds the lock.
var errRunning = errors.New("another agboxd is running")

// lock acquires the lock file for the life of the process, before agboxd changes any other file. The kernel releases the lock when the
// process ends for any reason; the file stays.
func lock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the runtime directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := flockWithin(int(f.Fd()), lockPatience); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (pid %s, lock %s): stop it first, or give this one another XDG_RUNTIME_DIR and XDG_DATA_HOME",
				errRunning, holder(path), path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The pid is only for error messages, so a full disk does not prevent the start.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}

// lockPatience is how long lock waits for a dying agboxd: the kernel releases the lock with the end of the process, some time after kill -9
// has returned.
const (
	lockPatience = 2 * time.Second
	lockRetry    = 20 * time.Millisecond
)

func flockWithin(fd int, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(lockRetry) {
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
