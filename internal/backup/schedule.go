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
)

// Schedule writes a backup to a directory each interval and keeps the newest ones. When the next is due is told by the names
// of those that are there, so that no restart of the daemon moves it.
type Schedule struct {
	// Write writes one backup.
	Write func(ctx context.Context, w io.Writer) error
	// Dir is made with mode 0700 when it is missing. Files that are not of this instance stay.
	Dir string
	// Instance is the UUID of the store.
	Instance string
	// Interval is from one to the next. Keep is how many stay, at least 1.
	Interval time.Duration
	Keep     int
	// Done is told how each ended.
	Done   func(at time.Time, err error)
	Logger *slog.Logger
}

const (
	// longestWait is how late a clock that was set, or a host that slept, may make a backup.
	longestWait = time.Minute
	// retryAfter a failure; it is not long, and no reason to fill a log.
	retryAfter = 5 * time.Minute

	nameTime   = "20060102T150405Z"
	nameSuffix = ".backup"
)

// Run makes backups until ctx ends.
func (s *Schedule) Run(ctx context.Context) {
	due := s.first(s.Newest())
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

func (s *Schedule) first(newest time.Time) time.Time {
	if newest.IsZero() {
		return time.Now()
	}
	return newest.Add(s.Interval)
}

// wait returns true when it is due by the wall clock, and false when ctx has ended. A clock that was set back delays it by no
// more than an interval.
func (s *Schedule) wait(ctx context.Context, due *time.Time) bool {
	for {
		left := due.Round(0).Sub(time.Now().Round(0)) // Round: without the monotonic clock, which stands still while the host sleeps
		if left > s.Interval {
			left = s.Interval
			*due = time.Now().Add(left)
		}
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(min(left, longestWait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// make writes one backup, and then removes the oldest.
func (s *Schedule) make(ctx context.Context, now time.Time) (string, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of backups: %w", err)
	}
	tmp := filepath.Join(s.Dir, "."+s.prefix()+"unfinished") // one of a process that died is written over
	path := filepath.Join(s.Dir, s.prefix()+now.UTC().Format(nameTime)+nameSuffix)
	err := s.writeTo(ctx, tmp)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), removeFile(tmp))
	}
	return path, errors.Join(syncDir(s.Dir), s.prune())
}

// writeTo makes a whole, durable backup at path.
func (s *Schedule) writeTo(ctx context.Context, path string) error {
	if err := removeFile(path); err != nil {
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

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// prefix keeps the backups of several daemons in one directory apart.
func (s *Schedule) prefix() string { return "agbox-" + s.Instance[:8] + "-" }

// made returns when the backups that are there were made, oldest first.
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

// Newest returns when the newest backup that is there was made; zero when none can be seen.
func (s *Schedule) Newest() time.Time {
	times, err := s.made()
	if err != nil || len(times) == 0 {
		return time.Time{} // the next one says what is wrong with the directory
	}
	return times[len(times)-1]
}

func (s *Schedule) prune() error {
	times, err := s.made()
	if err != nil {
		return fmt.Errorf("list the backups: %w", err)
	}
	for _, at := range times[:max(0, len(times)-s.Keep)] {
		if err := removeFile(filepath.Join(s.Dir, s.prefix()+at.Format(nameTime)+nameSuffix)); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}
