package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a shell completion script",
		Long: `Print a script that completes commands, flags and the names of sandboxes and agents.

  bash: needs the package bash-completion; in ~/.bashrc:   source <(agbox completion bash)
  zsh:  in ~/.zshrc, after compinit:                       source <(agbox completion zsh)
  fish: in ~/.config/fish/config.fish:                     agbox completion fish | source`,
		Example:   "  source <(agbox completion bash)",
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usagef(cmd, "expected one of bash, zsh, fish")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.Out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.Out)
			}
			return cmd.Root().GenFishCompletion(a.Out, true)
		},
	}
}

// perArgument completes each argument with the function in its place, and no further ones.
func perArgument(each ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(each) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[len(args)](cmd, nil, typed)
	}
}

// completeEither is for verbs that take one sandbox, or one agent as agent/NAME.
func (a *app) completeEither(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, directive := a.sandboxKind().first(cmd, args, typed)
	agents, _ := a.agentKind().first(cmd, args, typed)
	for _, name := range agents {
		names = append(names, kindAgent+"/"+name)
	}
	return names, directive
}

// completeExecs completes the IDs of active execs, with their commands.
func (a *app) completeExecs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	execs, err := a.conn().ListActiveExecs(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, e := range execs {
		ids = append(ids, e.GetExecId()+"\t"+commandLine(e.GetCommand(), commandWidth))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeExecOrName completes the argument of "agbox logs".
func (a *app) completeExecOrName(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ids, directive := a.completeExecs(cmd, args, typed)
	names, _ := a.completeEither(cmd, args, typed)
	return append(ids, names...), directive
}

// completeLabels completes the labels of live sandboxes.
func (a *app) completeLabels(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := a.live(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var pairs []string
	for _, sb := range all {
		for key, value := range sb.GetLabels() {
			pairs = append(pairs, key+"="+value)
		}
	}
	slices.Sort(pairs)
	return slices.Compact(pairs), cobra.ShellCompDirectiveNoFileComp
}

// completeManifests completes files and directories.
func completeManifests(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// completeFlag completes a flag with a fixed set of values.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	onFlag(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// onFlag registers a completion for a flag of the command.
func onFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag is misspelled, or has a completion already
	}
}
