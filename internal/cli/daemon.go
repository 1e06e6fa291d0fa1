package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
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
	engine.AddCommand(a.engineConfirmCommand())
	return engine
}

func (a *app) engineConfirmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "confirm", Short: "Accept the engine as the right one, and give up what vanished from it", Args: noArgs,
		Long: `Confirm that the Docker engine behind the daemon is the right one although it does not show containers of sandboxes, as after its
data was wiped. Sandboxes whose containers are gone become FAILED, and are named. The daemon looks twice before it gives one up, so this
can take 15 seconds. What it shows again meanwhile is not given up. Exit code 1: it is not proven of a sandbox that it is gone.`,
	}
	output := outputFlag(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkOutput(cmd, *output, "json"); err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		done, err := c.ConfirmEngine(cmd.Context())
		if err != nil {
			return err
		}
		if *output == "json" {
			err = json.NewEncoder(a.Out).Encode(done) // one object a line
		} else {
			a.showConfirmation(cmd.Context(), c, done)
		}
		return errors.Join(err, outcomeOf(cmd.Context(), len(done.Undecided) > 0))
	}
	return cmd
}

func (a *app) showConfirmation(ctx context.Context, c *client.Client, done client.EngineConfirmation) {
	fmt.Fprintf(a.Out, "engine %s confirmed\n", done.EngineID)
	for _, sb := range byName(ctx, c, done.GivenUp) {
		fmt.Fprintf(a.Out, "sandbox/%s given up\n", nameOrID(sb))
	}
	for _, sb := range byName(ctx, c, done.Undecided) {
		text := "it is not proven that it is gone"
		if m := sb.GetStatusMessage(); m != "" {
			text = m
		}
		a.complain(fmt.Errorf("sandbox/%s is not given up: %s", nameOrID(sb), oneLine(text)))
	}
	if len(done.Undecided) > 0 {
		fmt.Fprintln(a.Err, "run \"agbox engine confirm\" again once agboxd has looked again; \"agbox explain NAME\" says what it waits for")
	}
}

// byName reads sandboxes, sorted by name. Of one that can't be read only the ID is known.
func byName(ctx context.Context, c *client.Client, ids []string) []*agboxv1.SandboxHandle {
	var list []*agboxv1.SandboxHandle
	for _, id := range ids {
		sb, err := c.GetSandbox(ctx, id)
		if err != nil {
			sb = &agboxv1.SandboxHandle{SandboxId: id}
		}
		list = append(list, sb)
	}
	slices.SortFunc(list, func(a, b *agboxv1.SandboxHandle) int { return strings.Compare(nameOrID(a), nameOrID(b)) })
	return list
}
