package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/store"
)

// runRoot is where the directories of sandboxes are that hold their record files.
func runRoot(paths config.Paths) string { return filepath.Join(paths.DataDir, "s") }

// openRecords opens the database. One that is lost, empty or damaged, where the data directory shows that there was one, is
// kept aside as it is, and a new one takes its place whose records are to be rebuilt.
func openRecords(ctx context.Context, o store.Options, paths config.Paths, logRoot string, log *slog.Logger) (*store.Store, error) {
	lost, err := isLost(paths.Database)
	if err != nil {
		return nil, err
	}
	if !lost {
		s, err := store.Open(ctx, o)
		if err == nil || !errdefs.IsDataLoss(err) {
			return s, err
		}
		log.Error("the database is damaged; its records are rebuilt", "path", paths.Database, "err", err)
	}
	instance, traces, err := tracesOf(paths, logRoot)
	if err != nil {
		return nil, err
	}
	o.Instance, o.Rebuild = instance, traces || !lost
	aside, err := store.SetAside(paths.Database, time.Now())
	if err != nil {
		return nil, err
	}
	if o.Rebuild {
		log.Warn("there is no usable database; a new one is made and its records are rebuilt", "path", paths.Database,
			"kept_as", aside, "instance", instance)
	}
	return store.Open(ctx, o)
}

// isLost reports whether there is no file, or an empty one.
func isLost(database string) (bool, error) {
	info, err := os.Stat(database)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the database: %w: %w", err, errdefs.ErrUnavailable)
	}
	return info.Size() == 0, nil
}

// tracesOf looks for what a daemon leaves beside its database: the file with its UUID, which may be missing, and directories of
// sandboxes. Without any this is a first start.
func tracesOf(paths config.Paths, logRoot string) (instance string, found bool, err error) {
	text, err := os.ReadFile(filepath.Join(paths.DataDir, "instance"))
	switch {
	case err == nil:
		found = true
		if id, bad := uuid.Parse(strings.TrimSpace(string(text))); bad == nil {
			instance = id.String()
		}
	case !errors.Is(err, os.ErrNotExist):
		return "", false, fmt.Errorf("read the instance: %w: %w", err, errdefs.ErrUnavailable)
	}
	for _, dir := range []string{runRoot(paths), logRoot} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", false, fmt.Errorf("look for sandboxes: %w: %w", err, errdefs.ErrUnavailable)
		}
		found = found || len(entries) > 0
	}
	return instance, found, nil
}
