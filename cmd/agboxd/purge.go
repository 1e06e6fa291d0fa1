package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/purge"
)

type purgeOptions struct {
	configFile                          string
	yes, dryRun, volumes, withoutEngine bool
}

func purgeCommand() *cobra.Command {
	var o purgeOptions
	cmd := &cobra.Command{
		Use: "purge", Short: "Remove everything that belongs to a data directory, and the directory; the daemon must not run",
		Long: "Remove all sandboxes, running or not, with their containers and networks, the volume that marks the engine, and all files: records,\n" +
			"logs, backups in the data directory, the runtime directory. It asks first: type the instance, or give --yes. --dry-run prints what would\n" +
			"be removed and what stays. Only objects whose labels name this data directory's instance are removed.\n\n" +
			"Named volumes stay, unless --volumes is given; then their content is lost. Images, the configuration file and backups in other\n" +
			"directories always stay. The purge may be killed at any moment: repeat it. agboxd does not start on a directory that is half removed.",
		Example: "  agboxd purge --dry-run\n  agboxd purge --volumes --yes",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPurge(cmd, o) },
	}
	cmd.Flags().StringVar(&o.configFile, "config", "", configFlagHelp)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be removed; change nothing")
	cmd.Flags().BoolVar(&o.volumes, "volumes", false, "also remove named volumes with their content")
	cmd.Flags().BoolVar(&o.withoutEngine, "without-engine", false, "remove the files only; containers, networks and volumes stay where they are")
	return cmd
}

func runPurge(cmd *cobra.Command, o purgeOptions) error {
	cfg, _, paths, err := effective(cmd, o.configFile)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !purge.IsDataDir(paths) {
		_, err := fmt.Fprintf(out, "nothing to purge: %s has no data of agboxd\n", paths.DataDir)
		return err
	}
	if err := checkRoots(cfg, paths); err != nil {
		return err
	}
	_, release, err := lockDatabase(cmd.Context(), paths)
	if err != nil {
		return err
	}
	defer release()
	po := purge.Options{Paths: paths, Logs: cfg.Artifacts.ExecOutputRoot, Backups: cfg.Backup.Dir, Volumes: o.volumes, Out: out}
	if !o.withoutEngine {
		engine, err := dockerx.New(dockerx.Options{Host: cfg.Docker.Host})
		if err != nil {
			return &exitError{exitUsage, err}
		}
		defer func() { _ = engine.Close() }()
		po.Engine = engine
	}
	p, err := purge.New(cmd.Context(), po)
	if err != nil {
		return err
	}
	if o.dryRun {
		return p.Show("would remove ")
	}
	if !o.yes {
		if err := p.Confirm(cmd.Context(), cmd.InOrStdin()); err != nil {
			return err
		}
	}
	if err := p.Run(cmd.Context()); err != nil || o.withoutEngine {
		return err
	}
	return sweepRules()
}

// sweepRules removes packet filter rules of networks that are gone. Without privilege agboxd has set none.
func sweepRules() error {
	rules := firewall.New(0)
	_, err := rules.Sweep(func(string) bool { return false })
	err = errors.Join(err, rules.Close())
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fmt.Errorf("packet filter rules may be left in the table inet %s: %w", firewall.TableName, err)
}
