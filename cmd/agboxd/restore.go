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
	"github.com/agbox/agbox/internal/host/lockfile"
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
	r := &backup.Restore{
		Backup: b, Offline: offline, Database: paths.Database, Instance: filepath.Join(paths.DataDir, "instance"),
		Logs: cfg.Artifacts.ExecOutputRoot, CheckSchema: store.CheckSchema, Check: backup.CheckInChild, Now: time.Now,
	}
	if err := r.Run(cmd.Context()); err != nil {
		return &exitError{exitRuntime, errors.Join(fmt.Errorf("restore %s: %w", from, err), r.Discard())}
	}
	return printRestored(cmd.OutOrStdout(), r, from)
}

// lockDatabase prevents agboxd from using the database until release. It acquires both the lock of agboxd and the lock beside the database.
func lockDatabase(ctx context.Context, paths config.Paths) (o *store.Offline, release func(), err error) {
	if err := os.MkdirAll(paths.DataDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data directory: %w", err)
	}
	lockFile, err := lockfile.Acquire(paths.Lock)
	if err != nil {
		return nil, nil, err
	}
	if o, err = store.LockOffline(ctx, paths.Database); err != nil {
		if errdefs.IsUnavailable(err) {
			err = fmt.Errorf("%w: it has %s open; stop it first", lockfile.ErrRunning, paths.Database)
		}
		return nil, nil, errors.Join(err, lockFile.Close())
	}
	return o, func() { _ = errors.Join(o.Close(), lockFile.Close()) }, nil // the end of the process releases both as well
}

// printRestored writes the result and what the next start of agboxd does.
func printRestored(w io.Writer, r *backup.Restore, from string) error {
	kept := "There was no database before."
	if r.KeptAs != "" {
		kept = "The database before is " + r.KeptAs + "; remove it when you do not need it any more."
	}
	logs := "The backup has no logs."
	if r.Backup.WithLogs {
		logs = fmt.Sprintf("Logs: %d written, %d were there and are as they were.", r.LogsRestored, r.LogsKept)
	}
	_, err := fmt.Fprintf(w, `%s is restored to %s: the records of store %s as of %s.
%s
%s
At its next start agboxd compares the records with the engine. A sandbox whose containers are gone becomes FAILED. Containers
of sandboxes that the backup does not know are reported (agboxd_unknown_sandboxes) and never removed by it.
`, from, r.Database, r.Backup.Instance, r.Backup.Created.Format(time.RFC3339), kept, logs)
	return err
}
