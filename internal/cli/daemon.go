package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	var only bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of the daemon", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(a.Out, "client: agbox %s\n", a.version)
			if only {
				return nil
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			ping, err := c.Ping(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "server: %s %s\n", ping.GetDaemon(), ping.GetVersion())
			a.warnEngine(cmd.Context(), c)
			return nil
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "do not ask the daemon")
	return cmd
}

func (a *app) engineCommand() *cobra.Command {
	engine := group("engine", "Manage the Docker engine behind the daemon", "")
	engine.AddCommand(&cobra.Command{
		Use: "confirm", Short: "Accept the engine as the right one", Args: noArgs,
		Long: `Say that the Docker engine behind the daemon is the right one although it holds nothing of ours, as after its data was
wiped. From then on sandboxes are judged by what it holds: those that are gone become FAILED.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			id, err := c.ConfirmEngine(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "engine %s confirmed\n", id)
			return nil
		},
	})
	return engine
}
