package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/internal/wait"
)

// Schedule writes a backup to a directory at each interval and keeps the newest ones. The names of the existing backups determine when the
// next one is due, so a restart of agboxd does not shift the schedule.
type Schedule struct {
	// Write writes one backup.
	Write func(ctx context.Context, w io.Writer) error
	// Dir is created with mode 0700 if it is missing. Files of other instances are kept.
	Dir string
	// Instance is the UUID of the store.
	Instance string
	// Interval is the time between backups. Keep is the number of backups to keep, at least 1.
	Interval time.Duration
	Keep     int
	// Done is called with the result of each backup.
	Done   func(at time.Time, err error)
	Logger *slog.Logger
}

const (
	// longestWait bounds the delay of a backup after the clock was set or the host slept.
	longestWait = time.Minute
	// retryAfter is the pause after a failure: short, but long enough not to fill the log.
	retryAfter = 5 * time.Minute

	nameTime   = "20060102T150405Z"
	nameSuffix = ".backup"
)

// Run writes backups until ctx ends.
func (s *Schedule) Run(ctx context.Context) {
	due := s.Newest().Add(s.Interval) // in the past if there is none
	for s.wait(ctx, &due) {
		now := time.Now()
		name, err := s.make(ctx, now)
		if ctx.Err() != nil {
			return
		}
		s.Done(now, err)
		if err != nil {
			s.Logger.Error("no scheduled backup was made", "err", err)
			due = now.Add(min(retryAfter, s.Interval))
			continue
		}
		s.Logger.Info("a scheduled backup was made", "file", name)
		due = now.Add(s.Interval)
	}
}

// wait waits until the wall clock reaches due and returns true, or until ctx ends and returns false. A clock that was set back delays a
// backup by at most one interval.
func (s *Schedule) wait(ctx context.Context, due *time.Time) bool {
	for {
		left := due.Round(0).Sub(time.Now().Round(0)) // Round removes the monotonic clock, which stops while the host sleeps
		if left > s.Interval {
			left = s.Interval
			*due = time.Now().Add(left)
		}
		if left <= 0 {
			return ctx.Err() == nil
		}
		if wait.For(ctx, min(left, longestWait)) != nil {
			return false
		}
	}
}

// make writes one backup, then removes the oldest ones.
func (s *Schedule) make(ctx context.Context, now time.Time) (string, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of backups: %w", err)
	}
	tmp := filepath.Join(s.Dir, "."+s.prefix()+"unfinished") // overwrites the file of a process that died
	path := filepath.Join(s.Dir, s.prefix()+now.UTC().Format(nameTime)+nameSuffix)
	err := s.writeTo(ctx, tmp)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), disk.Remove(tmp))
	}
	return path, errors.Join(disk.Sync(s.Dir), s.prune())
}

// writeTo writes a durable backup to path and verifies it.
func (s *Schedule) writeTo(ctx context.Context, path string) error {
	if err := disk.Remove(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = s.Write(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = readAgain(ctx, f)
	}
	return errors.Join(err, f.Close())
}

func readAgain(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err == nil {
		_, err = Open(ctx, f, info.Size())
	}
	return err
}

// prefix distinguishes the backups of several daemons in one directory.
func (s *Schedule) prefix() string { return "agbox-" + s.Instance[:8] + "-" }

// made returns the times of the existing backups, oldest first.
func (s *Schedule) made() ([]time.Time, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var times []time.Time
	for _, e := range entries {
		middle, ours := strings.CutPrefix(e.Name(), s.prefix())
		middle, whole := strings.CutSuffix(middle, nameSuffix)
		if at, err := time.Parse(nameTime, middle); err == nil && ours && whole {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times, nil
}

// Newest returns the time of the newest existing backup; zero if there is none or the directory cannot be listed.
func (s *Schedule) Newest() time.Time {
	times, err := s.made()
	if err != nil || len(times) == 0 {
		return time.Time{} // the next backup reports the directory's error
	}
	return times[len(times)-1]
}

func (s *Schedule) prune() error {
	times, err := s.made()
	if err != nil {
		return fmt.Errorf("list the backups: %w", err)
	}
	for _, at := range times[:max(0, len(times)-s.Keep)] {
		if err := disk.Remove(filepath.Join(s.Dir, s.prefix()+at.Format(nameTime)+nameSuffix)); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}
