package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
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
			ping, err := a.conn().Ping(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "server: %s %s\n", ping.GetDaemon(), ping.GetVersion())
			a.warnEngine(cmd.Context())
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
		Use: "confirm", Short: "Accept the engine, and give up sandboxes that vanished from it", Args: noArgs,
		Long: `Confirm that the Docker engine behind the daemon is the right one although it does not show containers of sandboxes, as after its
data was wiped. The daemon observes each of these sandboxes twice, which can take 15 seconds. Those that the engine does not show become
FAILED, and their names are printed. Exit code 1: a sandbox was not given up, because it may still exist.`,
	}
	output := outputFlag(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		done, err := a.conn().ConfirmEngine(cmd.Context())
		if err != nil {
			return err
		}
		if output.given() {
			err = printLine(a.Out, done)
		} else {
			a.showConfirmation(cmd.Context(), done)
		}
		return errors.Join(err, outcomeOf(cmd.Context(), len(done.Undecided) > 0))
	}
	return cmd
}

func (a *app) showConfirmation(ctx context.Context, done client.EngineConfirmation) {
	fmt.Fprintf(a.Out, "engine %s confirmed\n", done.EngineID)
	for _, sb := range a.byName(ctx, done.GivenUp) {
		fmt.Fprintf(a.Out, "sandbox/%s given up\n", nameOrID(sb))
	}
	for _, sb := range a.byName(ctx, done.Undecided) {
		text := cmp.Or(sb.GetStatusMessage(), "it may still exist")
		a.complain(fmt.Errorf("sandbox/%s is not given up: %s", nameOrID(sb), termsafe.Line(text)))
	}
	a.hint(textIf(len(done.Undecided) > 0, "run \"agbox engine confirm\" again later; \"agbox explain NAME\" shows what it waits for"))
}

// byName reads sandboxes and sorts them by name. For one that can't be read it returns the ID only.
func (a *app) byName(ctx context.Context, ids []string) []*agboxv1.SandboxHandle {
	var list []*agboxv1.SandboxHandle
	for _, id := range ids {
		sb, err := a.conn().GetSandbox(ctx, id)
		if err != nil {
			sb = &agboxv1.SandboxHandle{SandboxId: id}
		}
		list = append(list, sb)
	}
	slices.SortFunc(list, func(a, b *agboxv1.SandboxHandle) int { return strings.Compare(nameOrID(a), nameOrID(b)) })
	return list
}
