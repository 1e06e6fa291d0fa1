package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

func rehydrateCommand() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use: "rehydrate --dry-run", Short: "Show what would be rebuilt if the database were lost", Args: usageArgs(cobra.NoArgs),
		Long: "Print the records that a start without a database would rebuild: from what each, and what of it had to be guessed.\n" +
			"Nothing is changed, and the daemon may run; what it writes at that moment may show as missing. A start that finds no usable database rebuilds the records by itself;\n" +
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
	known, found, err := previewLog(paths, log)
	if err != nil {
		return err
	}
	instance, _, err := tracesOf(paths, cfg.Artifacts.ExecOutputRoot)
	if err != nil {
		return err
	}
	info, err := engine.Info(cmd.Context())
	if err != nil {
		return err
	}
	g := recovery.Gatherer{
		Engine: engine, Files: execjournal.New(cfg.Artifacts.ExecOutputRoot, runRoot(paths)), Log: log,
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

// previewLog replays the log to a temporary file and returns its live sandboxes and a line that summarizes it.
func previewLog(paths config.Paths, log *slog.Logger) (known []recovery.Known, line string, err error) {
	dir, err := os.MkdirTemp("", "agboxd-rehydrate-*")
	if err != nil {
		return nil, "", fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	found, list, err := store.Preview(store.Options{Path: paths.Database, Logger: log}, filepath.Join(dir, "ids.db"))
	if errdefs.IsNotFound(err) {
		return nil, "log: none usable; records are derived from labels and inspections", nil
	}
	if err != nil {
		return nil, "", err
	}
	for _, r := range list {
		known = append(known, recovery.Known{Record: r.Record, Execs: r.Execs, Torn: found.Missing != ""})
	}
	state := "complete: every record is recovered"
	if found.Missing != "" {
		state = "incomplete, so live sandboxes are derived from the engine: " + found.Missing
	}
	return known, fmt.Sprintf("log: %d sandboxes, %d agents; %s", found.Sandboxes, found.Agents, state), nil
}

// rehydrateSettings returns all settings except the engine run.
func rehydrateSettings(cfg config.Config, engine dockerx.Info) recovery.Settings {
	return recovery.Settings{
		Timeout: cfg.Runtime.Timeout, PidsLimit: int64(cfg.Runtime.PidsLimit), LifeSince: lifeSince(bootTime(time.Now()), engine),
	}
}

// lifeSince returns the boot time of the host, or the later start time of an engine without live restore, whose containers end with it.
func lifeSince(boot time.Time, engine dockerx.Info) time.Time {
	if !engine.LiveRestore && engine.StartedAt.After(boot) {
		return engine.StartedAt
	}
	return boot
}

// bootTime returns when the host booted, including time asleep; zero if the kernel does not report it.
func bootTime(now time.Time) time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(up.Nano()))
}
