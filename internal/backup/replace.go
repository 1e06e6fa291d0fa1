package backup

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/agbox/agbox/internal/host/disk"
)

// Offline is a database that no daemon has open, see store.Offline.
type Offline interface {
	SetAside(why string, now time.Time) (path string, err error)
	CompactTo(to string) (before, after int64, err error)
	Install(from string) error
}

// Restore puts the database of a backup in place. The process may be killed at any point; then the old database is in place or the new one,
// and the restore can be repeated.
type Restore struct {
	Backup  *File
	Offline Offline
	// Database is the path of the database, Instance that of the file with its UUID, and Logs the root directory of the logs of execs.
	Database, Instance, Logs string
	// CheckSchema returns an error if this program can't read a schema version, and Check if a database is damaged.
	CheckSchema func(version uint64) error
	Check       func(ctx context.Context, database string) error
	Now         func() time.Time
	// After is called with the name of each completed step; nil: not called. For tests.
	After func(step string) error

	// KeptAs is the path of the database that was replaced; "" without one.
	KeptAs string
	// LogsRestored and LogsKept count the logs that were missing and those that existed.
	LogsRestored, LogsKept int
}

// Run executes the steps in order. It restores logs before the database: agboxd would start an exec of the new database again if its
// journal were missing.
func (r *Restore) Run(ctx context.Context) error {
	return RunSteps(ctx, r.After, []Step{
		{"extract", r.extract}, {"check", r.verify}, {"logs", r.restoreLogs}, {"keep", r.setAside}, {"install", r.install}, {"instance", r.instance},
	})
}

// Discard removes what a failed restore left.
func (r *Restore) Discard() error { return disk.Remove(r.extracted()) }

// extracted returns the path of the new database before it is installed.
func (r *Restore) extracted() string { return r.Database + ".restoring" }

func (r *Restore) extract(ctx context.Context) error {
	if err := disk.Remove(r.extracted()); err != nil {
		return err
	}
	f, err := os.OpenFile(r.extracted(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(r.Backup.ExtractDatabase(ctx, f), f.Sync(), f.Close())
}

func (r *Restore) verify(ctx context.Context) error {
	if err := r.CheckSchema(r.Backup.Schema); err != nil {
		return err
	}
	return r.Check(ctx, r.extracted())
}

func (r *Restore) restoreLogs(ctx context.Context) (err error) {
	r.LogsRestored, r.LogsKept, err = r.Backup.RestoreLogs(ctx, r.Logs)
	return err
}

func (r *Restore) setAside(context.Context) (err error) {
	r.KeptAs, err = r.Offline.SetAside("before-restore", r.Now())
	return err
}

func (r *Restore) install(context.Context) error { return r.Offline.Install(r.extracted()) }

func (r *Restore) instance(context.Context) error {
	return disk.Replace(r.Instance, []byte(r.Backup.Instance+"\n"), 0o600)
}

// Compaction rewrites a database without its free space. The process may be killed at any point, as in a Restore.
type Compaction struct {
	Offline  Offline
	Database string // its path
	Check    func(ctx context.Context, database string) error
	After    func(step string) error // see Restore

	// Before and Now are sizes in bytes.
	Before, Now int64
}

// Run executes the steps in order.
func (c *Compaction) Run(ctx context.Context) error {
	return RunSteps(ctx, c.After, []Step{
		{"check the old", func(ctx context.Context) error { return c.Check(ctx, c.Database) }},
		{"copy", c.copy},
		{"check the new", func(ctx context.Context) error { return c.Check(ctx, c.compacted()) }},
		{"install", func(context.Context) error { return c.Offline.Install(c.compacted()) }},
	})
}

// Discard removes what a failed compaction left.
func (c *Compaction) Discard() error { return disk.Remove(c.compacted()) }

func (c *Compaction) compacted() string { return c.Database + ".compact" }

func (c *Compaction) copy(context.Context) (err error) {
	c.Before, c.Now, err = c.Offline.CompactTo(c.compacted())
	return err
}

// Step is a step of a command that may be killed at any point.
type Step struct {
	Name string
	Do   func(context.Context) error
}

// RunSteps runs steps in order until one fails, and calls after with the name of each completed one; nil: it is not called.
func RunSteps(ctx context.Context, after func(step string) error, steps []Step) error {
	for _, s := range steps {
		if err := s.Do(ctx); err != nil {
			return err
		}
		if after == nil {
			continue
		}
		if err := after(s.Name); err != nil {
			return err
		}
	}
	return nil
}
