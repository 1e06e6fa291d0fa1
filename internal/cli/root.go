package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agbox/agbox/internal/nearest"
)

func (a *app) rootCommand() *cobra.Command {
	root := group("agbox", "Run sandboxes on this host", `agbox runs sandboxes for agents and untrusted code on this host.

A sandbox is written in YAML, applied, and used by its name:

  agbox apply -f hello.yaml --wait
  agbox exec hello -- echo hi
  agbox get
  agbox delete hello

For a first try without YAML: agbox run --rm agbox-base:dev -- echo hi`)
	root.SilenceErrors, root.SilenceUsage, root.Version = true, true, a.version
	root.CompletionOptions.DisableDefaultCmd = true // completionCommand replaces it: it has the tested shells only
	root.SetHelpCommand(helpCommand(root))
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.hostFlags(root)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		a.applyCommand(), a.runCommand(), a.diffCommand(), a.getCommand(), a.describeCommand(), a.explainCommand(), a.waitCommand(), a.deleteCommand(),
	)
	addVerbs(root, a, a.sandboxKind(), sandboxVerbs)
	root.AddCommand(
		a.timeoutCommand(), a.execCommand(), a.attachCommand(), a.logsCommand(), a.cancelCommand(), a.execsCommand(), a.topCommand(), a.networkCommand(), a.eventsCommand(), a.engineCommand(),
		a.cpCommand(), a.lsCommand(), a.catCommand(), a.editCommand(), a.portForwardCommand(),
		a.agentCommand(), a.drainCommand(), a.undrainCommand(), a.backupCommand(), a.volumeCommand(), a.snapshotCommand(), a.templateCommand(), a.e2bCommand(), a.gcCommand(), a.doctorCommand(), a.contextCommand(), a.completionCommand(), a.versionCommand(),
	)
	return root
}

// helpCommand replaces cobra's, which shows the help of agbox for an unknown command, and exits with 0.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show the help of a command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if parent, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, sub := range parent.Commands() {
					names = append(names, sub.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && cmd.HasSubCommands() {
				err = cmd.Args(cmd, rest)
			}
			if err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// group returns a command that only has subcommands.
func group(use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			text := fmt.Sprintf("unknown command %q", args[0])
			if meant := near(cmd, args[0]); len(meant) > 0 {
				text += "; did you mean " + strings.Join(meant, " or ") + "?"
			}
			return usagef(cmd, "%s", text)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// flagError is an error of the flags. It names the flag that an unknown one probably means, and the command that comes before it if that is
// unknown, too.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return cmd.Args(cmd, words)
	}
	text := err.Error()
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		text = strings.Replace(text, number.Error(), "expected a number", 1)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		text += given("; did you mean --", nearest.Of(unknown.GetSpecifiedName(), known), "?")
	}
	return usagef(cmd, "%s", text)
}

// near returns the commands that are suggested for word or start with it, else those similar to it. It drops names that are not longer than the distance, because
// every short word is similar to them.
func near(cmd *cobra.Command, word string) []string {
	var meant, similar []string
	for _, name := range cmd.SuggestionsFor(word) {
		sub, _, err := cmd.Find([]string{name})
		switch {
		case err == nil && slices.Contains(sub.SuggestFor, word), strings.HasPrefix(name, word):
			meant = append(meant, name)
		case len(name) > cmd.SuggestionsMinimumDistance:
			similar = append(similar, name)
		}
	}
	if len(meant) > 0 {
		return meant
	}
	return similar
}

// one, exactly, atMostOne and atLeastOne check the number of arguments, which what describes.
func one(what string) cobra.PositionalArgs { return exactly(1, what) }

func exactly(n int, what string) cobra.PositionalArgs { return count(n, n, what) }

func atMostOne(what string) cobra.PositionalArgs { return count(0, 1, what) }

func atLeastOne(what string) cobra.PositionalArgs { return count(1, math.MaxInt, what) }

func count(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef(cmd, "expected %s, got %s", what, arguments(len(args)))
		}
		return nil
	}
}

// afterDash checks for one name and a command behind "--".
func afterDash(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return usagef(cmd, "expected NAME -- COMMAND [ARG...]")
	}
	return nil
}

// parseEnv parses the values KEY=VALUE of -e.
func parseEnv(cmd *cobra.Command, list []string) (map[string]string, error) {
	envs := map[string]string{}
	for _, pair := range list {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef(cmd, "bad -e: write KEY=VALUE")
		}
		envs[key] = value
	}
	return envs, nil
}

func arguments(n int) string { return plural(n, "argument") }

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

// parseLabels parses the labels "k=v" of a new object.
func parseLabels(cmd *cobra.Command, parts []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, part := range parts {
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, usagef(cmd, "bad label %q; write key=value", part)
		}
		if old, twice := labels[key]; twice && old != value {
			return nil, usagef(cmd, "two values for the label %q", key)
		}
		labels[key] = value
	}
	return labels, nil
}

// warnEngine prints a warning if the daemon cannot reach its engine: output may be stale, and requests wait.
func (a *app) warnEngine(ctx context.Context) {
	if ping, err := a.conn().Ping(ctx); err == nil && ping.GetEngineProblem() != "" {
		fmt.Fprintf(a.Err, "warning: %s; requests are accepted and carried out when the engine answers again\n", strings.TrimRight(ping.GetEngineProblem(), ".?"))
	}
}
