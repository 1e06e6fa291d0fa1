package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/mountpolicy"
)

const configFlagHelp = "configuration file (default: agents-sandbox/config.toml in $XDG_CONFIG_HOME, or in /etc for the system service)"

// configCommand checks or shows configuration files. It needs no daemon and changes nothing.
func configCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "config", Short: "Check or show the configuration", Args: usageArgs(noFile),
		Long: "The keys are described in docs/configuration.md. SIGHUP makes a running agboxd read its file again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&file, "config", "", configFlagHelp)
	cmd.AddCommand(
		&cobra.Command{
			Use: "check", Short: "Report every fault of a configuration file; exit with 2 if there is one", Args: usageArgs(noFile),
			Long: "Check every key, the files of tcp.listen and e2b.cert, and that the directories of sandboxes' files and of exec logs are safe: owned by this user, no symbolic\n" +
				"link, and on no path that another user can lead elsewhere. agboxd refuses to start for the same reasons.",
			RunE: func(cmd *cobra.Command, _ []string) error { return checkConfig(cmd, file) },
		},
		&cobra.Command{
			Use: "show", Short: "Print the effective values and their sources", Args: usageArgs(noFile),
			RunE: func(cmd *cobra.Command, _ []string) error { return showConfig(cmd, file) },
		},
	)
	return cmd
}

func checkConfig(cmd *cobra.Command, file string) error {
	cfg, origin, paths, err := effective(cmd, file)
	if err != nil {
		return err
	}
	if err := checkRoots(cfg, paths); err != nil {
		return err
	}
	if _, err := loadIdentity(cfg.TCP); err != nil {
		return err
	}
	if _, err := loadE2BCert(cfg.E2B); err != nil {
		return err
	}
	verdict := "ok"
	if origin.File == "" {
		verdict = "there is none, and none is needed; the defaults hold"
	}
	for _, warning := range origin.Warnings() {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "configuration file %s: %s\n", cmp.Or(origin.File, paths.ConfigFile), verdict)
	return err
}

func showConfig(cmd *cobra.Command, file string) error {
	cfg, origin, paths, err := effective(cmd, file)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "# database %s, socket %s\n", paths.Database, paths.Socket); err != nil {
		return err
	}
	return config.Write(cmd.OutOrStdout(), cfg, func(k config.Key) string { return origin.Of(k.Name) })
}

// effective loads the configuration as the daemon whose files cmd uses would.
func effective(cmd *cobra.Command, file string) (config.Config, config.Origin, config.Paths, error) {
	paths, err := resolved(cmd)
	if err != nil {
		return config.Config{}, config.Origin{}, paths, err
	}
	cfg, origin, err := config.Load(file, paths)
	return cfg, origin, paths, coded(exitUsage, err)
}

// checkRoots checks the directories below which sandboxes' containers write, without changing them: an unsafe one would leave every create
// waiting.
func checkRoots(cfg config.Config, paths config.Paths) error {
	var errs []error
	for _, root := range []struct{ name, path string }{
		{"the data directory", mountpolicy.Resolve(paths.DataDir)}, // it may be a link to a larger disk
		{"the directory of sandboxes' files", siteOf(cfg, paths).RunRoot()},
		{"artifacts.exec_output_root", cfg.Artifacts.ExecOutputRoot},
	} {
		if err := execjournal.CheckRoot(root.path); err != nil {
			errs = append(errs, fmt.Errorf("%s can't be used: %w", root.name, err))
		}
	}
	return coded(exitUsage, errors.Join(errs...))
}

// noFile refuses arguments: the file is named with --config, as for the daemon.
func noFile(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; name a file with --config %s", args[0], args[0])
	}
	return nil
}
