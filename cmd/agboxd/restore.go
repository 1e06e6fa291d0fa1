package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/store"
)

func restoreCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the database with a backup; the daemon must not run",
		Long: "Put a backup, made with \"agbox backup\", in the place of the database. The daemon must not run. The backup is checked\n" +
			"first; the present database stays beside it. Logs in the backup are written where they are missing. It may be killed at\n" +
			"any moment: then the old database is in place or the new one, and it can be repeated.",
		Args: usageArgs(oneFile("the backup to restore")),
		RunE: func(cmd *cobra.Command, args []string) error { return restore(cmd, args[0], file) },
	}
	cmd.Flags().StringVar(&file, "config", "", configFlagHelp)
	return cmd
}

func oneFile(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("expected %s, got %d arguments", what, len(args))
		}
		return nil
	}
}

func restore(cmd *cobra.Command, from, configFile string) error {
	cfg, _, paths, err := effective(cmd, configFile)
	if err != nil {
		return err
	}
	offline, release, err := lockDatabase(cmd.Context(), paths)
	if err != nil {
		return err
	}
	defer release()
	b, closeFile, err := backup.OpenPath(cmd.Context(), from)
	if err != nil {
		return &exitError{exitRuntime, err}
	}
	defer closeFile()
	r := &restoration{
		backup: b, offline: offline, paths: paths, logs: cfg.Artifacts.ExecOutputRoot, check: backup.CheckInChild, now: time.Now,
	}
	if err := r.run(cmd.Context()); err != nil {
		return &exitError{exitRuntime, errors.Join(fmt.Errorf("restore %s: %w", from, err), removeIfThere(r.extracted()))}
	}
	return r.print(cmd.OutOrStdout(), from)
}

// lockDatabase prevents agboxd from using the database until release. It acquires both the lock of agboxd and the lock beside the database.
func lockDatabase(ctx context.Context, paths config.Paths) (o *store.Offline, release func(), err error) {
	if err := os.MkdirAll(paths.DataDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data directory: %w", err)
	}
	lockFile, err := lock(paths.Lock)
	if err != nil {
		return nil, nil, err
	}
	if o, err = store.LockOffline(ctx, paths.Database); err != nil {
		if errdefs.IsUnavailable(err) {
			err = fmt.Errorf("%w: it has %s open; stop it first", errRunning, paths.Database)
		}
		return nil, nil, errors.Join(err, lockFile.Close())
	}
	return o, func() { _ = errors.Join(o.Close(), lockFile.Close()) }, nil // the end of the process releases both as well
}

// restoration is one restore. The process may be killed at any point.
type restoration struct {
	backup  *backup.File
	offline *store.Offline
	paths   config.Paths
	logs    string
	check   func(ctx context.Context, database string) error
	now     func() time.Time
	// after is called with the name of each completed step; nil: not called. For tests.
	after func(step string) error

	keptAs         string
	restored, kept int
}

// run executes the steps in order. It restores logs before the database: agboxd would start an exec of the new database again if its
// journal were missing.
func (r *restoration) run(ctx context.Context) error {
	return runSteps(ctx, r.after, []step{
		{"extract", r.extract}, {"check", r.verify}, {"logs", r.restoreLogs}, {"keep", r.setAside}, {"install", r.install}, {"instance", r.instance},
	})
}

// step is a step of a command that may be killed at any point.
type step struct {
	name string
	do   func(context.Context) error
}

// runSteps runs steps in order until one fails, and calls after with the name of each completed one; nil: it is not called.
func runSteps(ctx context.Context, after func(step string) error, steps []step) error {
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return err
		}
		if after == nil {
			continue
		}
		if err := after(s.name); err != nil {
			return err
		}
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// extracted returns the path of the new database before it is installed.
func (r *restoration) extracted() string { return r.paths.Database + ".restoring" }

func (r *restoration) extract(ctx context.Context) error {
	if err := removeIfThere(r.extracted()); err != nil {
		return err
	}
	f, err := os.OpenFile(r.extracted(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(r.backup.ExtractDatabase(ctx, f), f.Sync(), f.Close())
}

func (r *restoration) verify(ctx context.Context) error {
	if err := store.CheckSchema(r.backup.Schema); err != nil {
		return err
	}
	return r.check(ctx, r.extracted())
}

func (r *restoration) restoreLogs(ctx context.Context) (err error) {
	r.restored, r.kept, err = r.backup.RestoreLogs(ctx, r.logs)
	return err
}

func (r *restoration) setAside(context.Context) (err error) {
	r.keptAs, err = r.offline.SetAside("before-restore", r.now())
	return err
}

func (r *restoration) install(context.Context) error { return r.offline.Install(r.extracted()) }

func (r *restoration) instance(context.Context) error {
	return writeFile(filepath.Join(r.paths.DataDir, "instance"), []byte(r.backup.Instance+"\n"), 0o600)
}

// print writes the result and what the next start of agboxd does.
func (r *restoration) print(w io.Writer, from string) error {
	kept := "There was no database before."
	if r.keptAs != "" {
		kept = "The database before is " + r.keptAs + "; remove it when you do not need it any more."
	}
	logs := "The backup has no logs."
	if r.backup.WithLogs {
		logs = fmt.Sprintf("Logs: %d written, %d were there and are as they were.", r.restored, r.kept)
	}
	_, err := fmt.Fprintf(w, `%s is restored to %s: the records of store %s as of %s.
%s
%s
At its next start agboxd compares the records with the engine. A sandbox whose containers are gone becomes FAILED. Containers
of sandboxes that the backup does not know are reported (agboxd_unknown_sandboxes) and never removed by it.
`, from, r.paths.Database, r.backup.Instance, r.backup.Created.Format(time.RFC3339), kept, logs)
	return err
}
