package main

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

// recordFiles are the patterns of the files from which versions without a log rebuilt the database.
var recordFiles = []string{"s/*/record", "s/*/.record.tmp", "s/*/execs", "s/*/.execs.tmp", "agents/*", "agents"}

// removeRecordFiles removes the record files, which hold environment values.
func removeRecordFiles(dataDir string) error {
	var errs []error
	for _, pattern := range recordFiles {
		paths, err := filepath.Glob(filepath.Join(dataDir, pattern))
		errs = append(errs, err)
		for _, path := range paths {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// checkRecordFiles returns an error if a lost database must not be rebuilt here, because an earlier version has written its record files
// since the newest snapshot of the log: they are then the newest copy of the database, only that version can read them, and
// removeRecordFiles would remove them. It ignores older record files, which a kill between the first snapshot and their removal leaves.
// Errors: ErrFailedPrecondition, ErrUnavailable.
func checkRecordFiles(dataDir, database string) error {
	records, err := newest(dataDir, recordFiles...)
	if err != nil || records.IsZero() {
		return err
	}
	snapshot, err := newest(store.LogDir(database), "snapshot-????????") // excludes incomplete snapshots, which have a suffix
	if err != nil || snapshot.After(records) {
		return err
	}
	return fmt.Errorf("%s is lost or damaged, and its newest copy is the record files of an earlier version of agboxd in %s (s/*/record, s/*/execs, agents/): "+
		"start that version, which rebuilds the database from them, and then this one; or remove these files, and agboxd rebuilds sandboxes "+
		"from the log or the engine, without the newest changes: %w", database, dataDir, errdefs.ErrFailedPrecondition)
}

// newest returns the modification time of the newest regular file that matches one of the patterns; the zero time if there is none.
func newest(dir string, patterns ...string) (t time.Time, err error) {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return t, err
		}
		for _, path := range paths {
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return t, fmt.Errorf("look at %s: %w: %w", path, err, errdefs.ErrUnavailable)
			}
			if info.Mode().IsRegular() && info.ModTime().After(t) {
				t = info.ModTime()
			}
		}
	}
	return t, nil
}
