package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/store"
)

// RecordFiles lists the files from which versions without a log rebuilt the database, and at last the directory of those of agents.
func (s Site) RecordFiles() ([]string, error) {
	return glob(s.DataDir, "s/*/record", "s/*/.record.tmp", "s/*/execs", "s/*/.execs.tmp", "agents/*", "agents")
}

// RemoveRecordFiles removes the record files, which hold environment values.
func (s Site) RemoveRecordFiles() error {
	paths, err := s.RecordFiles()
	errs := []error{err}
	for _, path := range paths {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkRecordFiles returns an error if a lost database must not be rebuilt here, because an earlier version has written its record files
// since the newest snapshot of the log: they are then the newest copy of the database, only that version can read them, and
// RemoveRecordFiles would remove them. It ignores older record files, which a kill between the first snapshot and their removal leaves.
// Errors: ErrFailedPrecondition, ErrUnavailable.
func (s Site) checkRecordFiles() error {
	files, err := s.RecordFiles()
	if err != nil {
		return err
	}
	records, err := newest(files)
	if err != nil || records.IsZero() {
		return err
	}
	snapshots, err := glob(store.LogDir(s.Database), "snapshot-????????") // excludes incomplete snapshots, which have a suffix
	if err != nil {
		return err
	}
	snapshot, err := newest(snapshots)
	if err != nil || snapshot.After(records) {
		return err
	}
	return fmt.Errorf("%s is lost or damaged, and its newest copy is the record files of an earlier version of agboxd in %s (s/*/record, s/*/execs, agents/): "+
		"start that version, which rebuilds the database from them, and then this one; or remove these files, and agboxd rebuilds sandboxes "+
		"from the log or the engine, without the newest changes: %w", s.Database, s.DataDir, errdefs.ErrFailedPrecondition)
}

func glob(dir string, patterns ...string) (all []string, err error) {
	for _, pattern := range patterns {
		names, err := fs.Glob(os.DirFS(dir), pattern) // dir is no pattern
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, filepath.Join(dir, name))
		}
	}
	return all, nil
}

// newest returns the modification time of the newest regular file of paths; the zero time if there is none.
func newest(paths []string) (t time.Time, err error) {
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return t, fmt.Errorf("stat %s: %w: %w", path, err, errdefs.ErrUnavailable)
		}
		if info.Mode().IsRegular() && info.ModTime().After(t) {
			t = info.ModTime()
		}
	}
	return t, nil
}
