package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func (a *app) volumeCommand() *cobra.Command {
	cmd := group("volume", "List and remove named volumes", `List and remove named volumes.

A volume belongs to the name of a sandbox. It survives stop, delete and apply --replace, and the next sandbox of the name continues with
it. Only "agbox volume rm" and "agbox delete --volumes" remove it.`)
	cmd.Aliases = []string{"volumes"}
	cmd.AddCommand(a.volumeListCommand(), a.volumeRemoveCommand())
	return cmd
}

func (a *app) volumeListCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "ls [SANDBOX]", Aliases: []string{"list"}, Short: "List named volumes, of one sandbox name or of all",
		Long: `List named volumes, of one sandbox name or of all. A volume without a sandbox is kept for the next sandbox of its name.`,
		Args: atMostOne("at most the name of one sandbox"), ValidArgsFunction: a.sandboxKind().first,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listVolumes(cmd.Context(), bare(kindSandbox, strings.Join(args, "")), o)
		},
	}
	o = outputFlag(cmd, listFormats...)
	return cmd
}

func (a *app) listVolumes(ctx context.Context, sandboxName string, o *output) error {
	all, err := a.conn().ListVolumes(ctx, sandboxName)
	if err != nil {
		return err
	}
	switch {
	case o.format == "name":
		for _, v := range all {
			fmt.Fprintln(a.Out, volumeName(v))
		}
	case o.given():
		return printList(a, all, o)
	case len(all) == 0:
		fmt.Fprintln(a.Err, "no volumes")
	default:
		t := &table{}
		t.add("VOLUME", "IN USE", "AGE", "ENGINE NAME")
		for _, v := range all {
			used, old := "no", "-"
			if v.GetSandboxId() != "" {
				used = "yes"
			}
			if at := v.GetCreatedAt(); at != nil {
				old = age(at.AsTime(), time.Now())
			}
			t.add(volumeName(v), used, old, v.GetEngineName())
		}
		t.write(a.Out)
	}
	return nil
}

func volumeName(v *agboxv1.Volume) string { return v.GetSandboxName() + "/" + v.GetName() }

func (a *app) volumeRemoveCommand() *cobra.Command {
	var ignore bool
	cmd := &cobra.Command{
		Use: "rm SANDBOX/VOLUME...", Aliases: []string{"remove", "delete"}, Short: "Remove named volumes with their content",
		Long: `Remove named volumes with their content, for good. A volume in the spec of a sandbox that exists is refused: delete the sandbox
first, or delete both with "agbox delete --volumes".`,
		Example: "  agbox volume ls\n  agbox volume rm web/data",
		Args:    atLeastOne("the names of volumes, such as web/data"), ValidArgsFunction: a.volumeNames,
		RunE: func(cmd *cobra.Command, args []string) error { return a.removeVolumes(cmd, args, ignore) },
	}
	cmd.Flags().BoolVar(&ignore, "ignore-not-found", false, "a missing volume is no error")
	return cmd
}

func (a *app) removeVolumes(cmd *cobra.Command, names []string, ignore bool) error {
	for _, name := range names {
		sandbox, volume, ok := strings.Cut(name, "/")
		if !ok || sandbox == "" || volume == "" || strings.Contains(volume, "/") {
			return usagef(cmd, "bad volume %q; write SANDBOX/VOLUME, such as web/data", name)
		}
	}
	failed := false
	for _, name := range names {
		sandbox, volume, _ := strings.Cut(name, "/")
		err := a.conn().RemoveVolume(cmd.Context(), sandbox, volume)
		switch {
		case err == nil:
			fmt.Fprintf(a.Out, "volume/%s removed\n", name)
		case !ignore || !client.IsNotFound(err):
			failed = true
			a.complain(err)
		}
	}
	return outcomeOf(cmd.Context(), failed)
}

// volumeNames completes the names of volumes.
func (a *app) volumeNames(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := a.conn().ListVolumes(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, v := range all {
		names = append(names, volumeName(v))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
