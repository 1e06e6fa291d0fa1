package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Site locates the files of one daemon.
type Site struct {
	// DataDir is the data directory, Database the path of the database, and LogRoot the directory of the output of execs.
	DataDir, Database, LogRoot string
}

// RunRoot returns the directory that contains one directory per sandbox, with the files mounted into its containers.
func (s Site) RunRoot() string { return filepath.Join(s.DataDir, "s") }

// Execs returns the files of execs. It does not access the disk.
func (s Site) Execs() *execjournal.Dir { return execjournal.New(s.LogRoot, s.RunRoot()) }

// Open opens the database; o.Path is ignored. It keeps a lost, empty or damaged database aside unchanged and rebuilds it from the log. If
// there is no log, it creates a new database, and marks its records for a rebuild if the data directory shows that a database existed.
// recovered counts the records from the log; it is zero if nothing was lost. Errors: those of store.Open except ErrDataLoss;
// ErrFailedPrecondition for a file that is unreadable and not provably agboxd's, which stays where it is.
func (s Site) Open(ctx context.Context, o store.Options, log *slog.Logger) (records *store.Store, recovered store.Recovery, err error) {
	o.Path = s.Database
	lost, err := IsLost(s.Database)
	if err != nil {
		return nil, recovered, err
	}
	if !lost {
		records, err = store.Open(ctx, o)
		if err == nil || !errdefs.IsDataLoss(err) {
			return records, recovered, err
		}
		if err := s.checkOwned(); err != nil {
			return nil, recovered, err
		}
		log.Error("the database is damaged; its records are rebuilt", "path", s.Database, "err", err)
	}
	if err := s.checkRecordFiles(); err != nil {
		return nil, recovered, err
	}
	instance, traces, err := s.Traces()
	if err != nil {
		return nil, recovered, err
	}
	aside, err := store.SetAside(s.Database, time.Now())
	if err != nil {
		return nil, recovered, err
	}
	recovered, err = store.Recover(ctx, o)
	switch {
	case err == nil:
		log.Warn("the database was lost and is rebuilt from its log", "path", s.Database, "kept_as", aside, "sandboxes", recovered.Sandboxes,
			"agents", recovered.Agents, "missing", recovered.Missing)
		records, err = store.Open(ctx, o)
		return records, recovered, err
	case !errdefs.IsNotFound(err):
		return nil, recovered, err
	}
	o.Instance, o.Rebuild = instance, traces || !lost
	if o.Rebuild || aside != "" {
		log.Warn("there is no usable database; a new one is made", "path", s.Database, "kept_as", aside, "instance", instance,
			"rebuild", o.Rebuild)
	}
	records, err = store.Open(ctx, o)
	return records, recovered, err
}

// checkOwned returns an error unless the data directory proves that agboxd had a database here: by its log, its UUID, or the directory of a
// sandbox. Directories of exec logs prove nothing, because an older daemon has them too. Errors: ErrFailedPrecondition.
func (s Site) checkOwned() error {
	var ours []string
	for dir, pattern := range map[string]string{s.DataDir: "instance", s.RunRoot(): "*", store.LogDir(s.Database): "snapshot-????????"} {
		found, err := glob(dir, pattern)
		if err != nil {
			return err
		}
		ours = append(ours, found...)
	}
	if len(ours) > 0 {
		return nil
	}
	return fmt.Errorf("%s is not a readable database (\"agboxd db check\" says why), nothing beside it shows that agboxd wrote it, and it is left as it is: "+
		"restore a backup with \"agboxd restore FILE\", or start without its sandboxes after \"mv %s %s.old\": %w",
		s.Database, s.Database, s.Database, errdefs.ErrFailedPrecondition)
}

// IsLost reports whether the database file is missing or empty. A dangling symbolic link is an error: its disk may not be mounted yet.
func IsLost(database string) (bool, error) {
	info, err := os.Stat(database)
	if err == nil {
		return info.Size() == 0, nil
	}
	if _, here := os.Lstat(database); errors.Is(err, os.ErrNotExist) && errors.Is(here, os.ErrNotExist) {
		return true, nil
	}
	return false, fmt.Errorf("read the status of the database: %w: %w", err, errdefs.ErrUnavailable)
}

// Traces searches for files that an earlier run of agboxd left beside its database: the file with its UUID, which may be missing,
// directories of sandboxes, and a database that was set aside. If there are none, this is the first start.
func (s Site) Traces() (instance string, there bool, err error) {
	instance, there, err = s.Instance()
	if err != nil {
		return "", false, err
	}
	dirs, err := s.Execs().Dirs()
	if err != nil {
		return "", false, fmt.Errorf("look for sandboxes: %w: %w", err, errdefs.ErrUnavailable)
	}
	aside, err := hasAside(s.Database)
	if err != nil {
		return "", false, fmt.Errorf("look for a database that was set aside: %w: %w", err, errdefs.ErrUnavailable)
	}
	return instance, there || len(dirs) > 0 || aside, nil
}

// Instance returns the UUID beside the database. there is true and instance empty if the file holds no UUID.
func (s Site) Instance() (instance string, there bool, err error) {
	text, err := os.ReadFile(filepath.Join(s.DataDir, "instance"))
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
