package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recordfile"
	"github.com/agbox/agbox/internal/recovery"
)

func rehydrateCommand() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use: "rehydrate --dry-run", Short: "Show what would be rebuilt if the database were lost", Args: usageArgs(cobra.NoArgs),
		Long: "Print the records that a start without a database would rebuild: from what each, and what of it had to be guessed.\n" +
			"Nothing is changed, and the daemon may run; what it writes at that moment may show as torn. A start that finds no usable database rebuilds the records by itself;\n" +
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
	cfg, _, paths, err := effective(configFile)
	if err != nil {
		return err
	}
	engine, err := dockerx.New(dockerx.Options{Host: cfg.Docker.Host})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer func() { _ = engine.Close() }()
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	known, err := knownFiles(runRoot(paths), log)
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
	if err := recovery.Plan(in, time.Now()).WriteText(cmd.OutOrStdout()); err != nil {
		return err
	}
	return showAgents(cmd.OutOrStdout(), agentsRoot(paths), log)
}

func showAgents(w io.Writer, root string, log *slog.Logger) error {
	found, _, problems, err := recordfile.ReadAgents(root)
	if err != nil {
		return err
	}
	tellAgentProblems(log, problems)
	for _, f := range found {
		whole := ""
		if f.Torn {
			whole = ", whose newest change is missing"
		}
		if _, err := fmt.Fprintf(w, "agent: %s from its record file%s\n", f.ID, whole); err != nil {
			return err
		}
	}
	return nil
}

// rehydrateSettings are all but the name of the engine's life.
func rehydrateSettings(cfg config.Config, engine dockerx.Info) recovery.Settings {
	return recovery.Settings{
		Timeout: cfg.Runtime.Timeout, PidsLimit: int64(cfg.Runtime.PidsLimit), LifeSince: lifeSince(bootTime(time.Now()), engine),
	}
}

// lifeSince is the later of the start of the host and that of an engine whose end ends its containers.
func lifeSince(boot time.Time, engine dockerx.Info) time.Time {
	if !engine.LiveRestore && engine.StartedAt.After(boot) {
		return engine.StartedAt
	}
	return boot
}

// bootTime is when the host started, sleep included; zero when the kernel does not say.
func bootTime(now time.Time) time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(up.Nano()))
}
