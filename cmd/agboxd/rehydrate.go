package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/recovery"
)

func rehydrateCommand() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use: "rehydrate --dry-run", Short: "Show what would be rebuilt if the database were lost", Args: usageArgs(cobra.NoArgs),
		Long: "Print the records that a start without a database would rebuild: from what each, and what of it had to be guessed.\n" +
			"Nothing is changed, and the daemon may run; what it writes at that moment may show as missing. A start that finds no usable database rebuilds the records automatically;\n" +
			"docs/rehydration.md says how.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dry {
				return &exitError{exitUsage, errors.New("rehydrate requires --dry-run; agboxd rebuilds its records when it starts")}
			}
			return showRehydration(cmd, file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", configFlagHelp)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show, change nothing")
	return cmd
}

func showRehydration(cmd *cobra.Command, configFile string) error {
	cfg, _, paths, err := effective(cmd, configFile)
	if err != nil {
		return err
	}
	engine, err := dockerx.New(dockerx.Options{Host: cfg.Docker.Host})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer func() { _ = engine.Close() }()
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	site := siteOf(cfg, paths)
	known, found, err := site.Preview(log)
	if err != nil {
		return err
	}
	instance, _, err := site.Traces()
	if err != nil {
		return err
	}
	info, err := engine.Info(cmd.Context())
	if err != nil {
		return err
	}
	g := recovery.Gatherer{
		Engine: engine, Files: site.Execs(), Log: log,
		Instance: instance, Settings: rehydrateSettings(cfg, info),
	}
	in, err := g.Gather(cmd.Context(), known)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), found); err != nil {
		return err
	}
	return recovery.Plan(in, time.Now()).WriteText(cmd.OutOrStdout())
}

// rehydrateSettings returns all settings except the engine run.
func rehydrateSettings(cfg config.Config, engine dockerx.Info) recovery.Settings {
	return recovery.Settings{
		Timeout: cfg.Runtime.Timeout, PidsLimit: int64(cfg.Runtime.PidsLimit), LifeSince: recovery.LifeSince(engine, time.Now()),
	}
}

// siteOf returns the files that the records of a daemon are recovered from.
func siteOf(cfg config.Config, paths config.Paths) recovery.Site {
	return recovery.Site{DataDir: paths.DataDir, Database: paths.Database, LogRoot: cfg.Artifacts.ExecOutputRoot}
}
