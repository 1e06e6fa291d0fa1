package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// runRoot returns the directory that contains one directory per sandbox, with the files mounted into its containers.
func runRoot(paths config.Paths) string { return filepath.Join(paths.DataDir, "s") }

// openRecords opens the database. It keeps a lost, empty or damaged database aside unchanged and rebuilds it from the log. If there is no
// log, it creates a new database, and marks its records for a rebuild if the data directory shows that a database existed. recovered counts
// the records from the log; it is zero if nothing was lost.
func openRecords(ctx context.Context, o store.Options, paths config.Paths, logRoot string, log *slog.Logger) (s *store.Store, recovered store.Recovery, err error) {
	lost, err := isLost(paths.Database)
	if err != nil {
		return nil, recovered, err
	}
	if !lost {
		s, err := store.Open(ctx, o)
		if err == nil || !errdefs.IsDataLoss(err) {
			return s, recovered, err
		}
		log.Error("the database is damaged; its records are rebuilt", "path", paths.Database, "err", err)
	}
	if err := checkRecordFiles(paths.DataDir, paths.Database); err != nil {
		return nil, recovered, err
	}
	instance, traces, err := tracesOf(paths, logRoot)
	if err != nil {
		return nil, recovered, err
	}
	aside, err := store.SetAside(paths.Database, time.Now())
	if err != nil {
		return nil, recovered, err
	}
	recovered, err = store.Recover(ctx, o)
	switch {
	case err == nil:
		log.Warn("the database was lost and is rebuilt from its log", "path", paths.Database, "kept_as", aside, "sandboxes", recovered.Sandboxes,
			"agents", recovered.Agents, "missing", recovered.Missing)
		s, err = store.Open(ctx, o)
		return s, recovered, err
	case !errdefs.IsNotFound(err):
		return nil, recovered, err
	}
	o.Instance, o.Rebuild = instance, traces || !lost
	if o.Rebuild || aside != "" {
		log.Warn("there is no usable database; a new one is made", "path", paths.Database, "kept_as", aside, "instance", instance,
			"rebuild", o.Rebuild)
	}
	s, err = store.Open(ctx, o)
	return s, recovered, err
}

// isLost reports whether the database file is missing or empty. A dangling symbolic link is an error: its disk may not be mounted yet.
func isLost(database string) (bool, error) {
	info, err := os.Stat(database)
	if err == nil {
		return info.Size() == 0, nil
	}
	if _, here := os.Lstat(database); errors.Is(err, os.ErrNotExist) && errors.Is(here, os.ErrNotExist) {
		return true, nil
	}
	return false, fmt.Errorf("read the status of the database: %w: %w", err, errdefs.ErrUnavailable)
}

// tracesOf searches for files that an earlier run of agboxd left beside its database: the file with its UUID, which may be missing,
// directories of sandboxes, and a database that was set aside. If there are none, this is the first start.
func tracesOf(paths config.Paths, logRoot string) (instance string, there bool, err error) {
	instance, there, err = readInstance(paths)
	if err != nil {
		return "", false, err
	}
	dirs, err := execjournal.New(logRoot, runRoot(paths)).Dirs()
	if err != nil {
		return "", false, fmt.Errorf("look for sandboxes: %w: %w", err, errdefs.ErrUnavailable)
	}
	aside, err := hasAside(paths.Database)
	if err != nil {
		return "", false, fmt.Errorf("look for a database that was set aside: %w: %w", err, errdefs.ErrUnavailable)
	}
	return instance, there || len(dirs) > 0 || aside, nil
}

// readInstance returns the UUID beside the database. there is true and instance empty if the file holds no UUID.
func readInstance(paths config.Paths) (instance string, there bool, err error) {
	text, err := os.ReadFile(filepath.Join(paths.DataDir, "instance"))
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read the instance: %w: %w", err, errdefs.ErrUnavailable)
	}
	if id, err := uuid.Parse(strings.TrimSpace(string(text))); err == nil {
		instance = id.String()
	}
	return instance, true, nil
}

// hasAside reports whether an earlier start set a damaged database aside and died before it created a new one.
func hasAside(database string) (bool, error) {
	entries, err := os.ReadDir(filepath.Dir(database))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	prefix := filepath.Base(database) + ".damaged-"
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), prefix) }), err
}

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
				return t, fmt.Errorf("stat %s: %w: %w", path, err, errdefs.ErrUnavailable)
			}
			if info.Mode().IsRegular() && info.ModTime().After(t) {
				t = info.ModTime()
			}
		}
	}
	return t, nil
}
