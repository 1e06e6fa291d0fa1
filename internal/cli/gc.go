package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
)

type gcOptions struct{ dryRun, unknown, yes bool }

func (a *app) gcCommand() *cobra.Command {
	var o gcOptions
	cmd := &cobra.Command{
		Use: "gc", SuggestFor: []string{"prune", "clean", "cleanup", "sweep"}, Short: "Remove leftovers of deleted sandboxes",
		Long: `Remove containers, networks and directories of deleted sandboxes, and objects of live sandboxes that their spec does not name. The
daemon removes them too, unless runtime.orphan_sweep is "dry-run". --dry-run lists them.

Images of snapshots that were cut off, as by a kill of the daemon, are leftovers too; snapshots and named volumes are not.

Objects with this daemon's label but without a record are listed and kept: they may belong to sandboxes that are newer than a
restored backup. --unknown --yes removes them.`,
		Example: "  agbox gc --dry-run\n  agbox gc\n  agbox gc --unknown --yes",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.unknown && !o.yes && !o.dryRun {
				return usagef(cmd, "--unknown removes sandboxes that may still be in use: list them with --dry-run, then add --yes")
			}
			return a.gc(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "list leftovers, remove nothing")
	cmd.Flags().BoolVar(&o.unknown, "unknown", false, "also remove objects of sandboxes that the records never knew")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "confirm --unknown")
	return cmd
}

func (a *app) gc(ctx context.Context, o gcOptions) error {
	var items []*agboxv1.GarbageItem
	var err error
	if o.dryRun {
		items, err = a.conn().Garbage(ctx)
	} else {
		items, err = a.conn().CollectGarbage(ctx, o.unknown)
	}
	if err != nil {
		return err
	}
	if len(items) == 0 {
		fmt.Fprintln(a.Err, "no leftovers")
		return nil
	}
	failed := a.printGarbage(items, o)
	return outcomeOf(ctx, failed)
}

// printGarbage reports whether a removal failed.
func (a *app) printGarbage(items []*agboxv1.GarbageItem, o gcOptions) (failed bool) {
	t := &table{}
	t.add("KIND", "NAME", "SANDBOX", "OUTCOME", "REASON")
	kept := 0
	for _, g := range items {
		outcome := "removed"
		switch {
		case o.dryRun && g.GetUnknown() && !o.unknown:
			outcome = "to be kept"
			kept++
		case o.dryRun:
			outcome = "to be removed"
		case g.GetError() != "":
			outcome, failed = "failed", true
		case !g.GetRemoved():
			outcome = "kept"
			kept++
		}
		t.add(g.GetKind(), termsafe.Line(garbageName(g)), dash(termsafe.Line(g.GetSandboxId())), outcome, termsafe.Line(g.GetReason()))
	}
	t.write(a.Out)
	for _, g := range items {
		if g.GetError() != "" {
			a.complain(fmt.Errorf("%s %s: %s", g.GetKind(), garbageName(g), g.GetError()))
		}
	}
	a.hint(textIf(kept > 0, fmt.Sprintf("%d kept: the records never knew their sandboxes; \"agbox gc --unknown --yes\" removes them", kept)))
	return failed
}

// garbageName returns the name or the path of an item.
func garbageName(g *agboxv1.GarbageItem) string {
	if filepath.IsAbs(g.GetId()) || g.GetName() == "" {
		return g.GetId()
	}
	return g.GetName()
}
