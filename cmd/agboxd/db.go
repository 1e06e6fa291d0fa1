package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/internal/audit"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/store"
)

func dbCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "db", Short: "Check or compact the database; the daemon must not run", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "check [FILE]", Short: "Report every fault of a database; exit with 1 if there is one", Args: usageArgs(cobra.MaximumNArgs(1)),
			Long: "Check every page and every record of the database, or of FILE, and print what is damaged, with bucket and key, and which\n" +
				"invariants of the crash contract the records violate. Nothing is changed. Beside a daemon that runs, check the database in a\n" +
				"backup; docs/backup.md says how to take it out. agboxd audit also compares the records with the engine and the files.",
			RunE: checkDatabase,
		},
		&cobra.Command{
			Use: "compact", Short: "Rewrite the database without its free space", Args: usageArgs(cobra.NoArgs),
			Long: "Write every record to a new file, check that, and put it in the place of the database. It may be killed at any moment:\n" +
				"then the old file is in place or the new one. Until the end there must be space for both.",
			RunE: compactDatabase,
		},
	)
	return cmd
}

func checkDatabase(cmd *cobra.Command, args []string) error {
	paths, err := resolved(cmd)
	if err != nil {
		return err
	}
	file := paths.Database
	if len(args) > 0 {
		file = args[0]
	}
	if _, err := os.Stat(file); err != nil {
		return err
	}
	if err := backup.CheckInChild(cmd.Context(), file); err != nil {
		return &exitError{exitRuntime, fmt.Errorf("check %s: %w", file, err)}
	}
	n := 0
	err = store.CheckRecords(file, func(f store.Finding) {
		n++
		fmt.Fprintln(cmd.OutOrStdout(), f)
	})
	if err != nil {
		return &exitError{exitRuntime, err}
	}
	violations, err := audit.CheckRecords(file)
	for _, f := range violations {
		n++
		fmt.Fprintln(cmd.OutOrStdout(), f)
	}
	switch {
	case err != nil:
		return &exitError{exitRuntime, err}
	case n > 0:
		return &exitError{exitRuntime, fmt.Errorf("%s: %d findings", file, n)}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", file)
	return nil
}

func compactDatabase(cmd *cobra.Command, _ []string) error {
	paths, err := resolved(cmd)
	if err != nil {
		return err
	}
	if _, err := os.Stat(paths.Database); err != nil {
		return err
	}
	offline, release, err := lockDatabase(cmd.Context(), paths)
	if err != nil {
		return err
	}
	defer release()
	c := &backup.Compaction{Offline: offline, Database: paths.Database, Check: backup.CheckInChild}
	if err := c.Run(cmd.Context()); err != nil {
		return &exitError{exitRuntime, errors.Join(fmt.Errorf("compact %s: %w", paths.Database, err), c.Discard())}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes before, %d bytes now\n", paths.Database, c.Before, c.Now)
	return nil
}
