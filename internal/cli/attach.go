package cli

import (
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func (a *app) attachCommand() *cobra.Command {
	var o execOptions
	var noStdin bool
	cmd := &cobra.Command{
		Use: "attach EXEC", Short: "Connect to a running command: its output, and its input if it has one",
		Long: `Connect to a running command. All output since its start is shown, then what follows; of a command with a terminal only what follows, and
the program in it draws its screen again. If the command was started with -i, standard input is passed on, unless --no-stdin is given; if
another program writes it, this one takes it over. With a terminal, the keys ^P ^Q leave the command running.

The exit code is the command's, as of "agbox exec". ^C cancels a command without a terminal.`,
		Example: "  agbox attach 0e12dd5b\n  agbox attach --no-stdin 0e12dd5b",
		Args:    one("the ID of an exec"), ValidArgsFunction: perArgument(a.completeExecOrName),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := parseKeys(o.keys); err != nil {
				return usagef(cmd, "bad --detach-keys: %v", err)
			}
			e, err := a.findExec(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.tty = e.GetTerminal()
			o.stdin = e.GetStdin() != nil && !noStdin && e.GetState() == agboxv1.ExecState_EXEC_STATE_RUNNING
			o.takeOver, o.fromNow = true, o.tty
			return a.attachExec(cmd.Context(), e.GetExecId(), o)
		},
	}
	cmd.Flags().BoolVar(&noStdin, "no-stdin", false, "only show the output")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "write all escape sequences to the terminal unchanged")
	cmd.Flags().StringVar(&o.keys, "detach-keys", defaultDetachKeys, "keys that leave a command with a terminal running")
	return cmd
}
