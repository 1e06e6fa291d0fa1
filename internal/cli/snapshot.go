package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/internal/wait"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := group("snapshot", "Make images of sandboxes' files, list and remove them", `Make images of sandboxes' files, list and remove them.

A snapshot has the files of a sandbox, and starts any number of new sandboxes with "agbox run --snapshot ID", or as the image of a manifest.
It has no mounts, volumes, services, environment, processes or memory. It outlives its sandbox: only "agbox snapshot rm" removes it.`)
	cmd.Aliases, cmd.SuggestFor = []string{"snapshots"}, []string{"commit", "save", "checkpoint"}
	cmd.AddCommand(a.snapshotCreateCommand(), a.snapshotListCommand(), a.snapshotRemoveCommand())
	return cmd
}

// snapshotFormats are those of a single snapshot.
var snapshotFormats = []string{"yaml", "json", "name", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file="}

func (a *app) snapshotCreateCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "create SANDBOX [ID]", SuggestFor: []string{"make", "add", "new"}, Short: "Make a snapshot of a sandbox's files",
		Long: `Make a snapshot of the files of a READY, PAUSED or STOPPED sandbox, and return once it is complete. The processes of a READY sandbox are
frozen meanwhile. ID is 4 to 200 letters, digits, "-" and "_"; without it, it is made from the sandbox's name.

Programs that keep data in memory write it to files first: a snapshot of a database that runs is what a power failure would leave.`,
		Example: "  agbox snapshot create web tools-installed\n  agbox run --snapshot tools-installed -- ls /workspace\n" +
			"  agbox snapshot create web -o jsonpath=.image",
		Args: count(1, 2, "a sandbox, and perhaps an ID for the snapshot"), ValidArgsFunction: a.sandboxKind().first,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := bareSnapshot(strings.Join(args[1:], ""))
			if len(args) > 1 {
				if errs := validate.CreateSnapshot(&agboxv1.CreateSnapshotRequest{SandboxId: "any", SnapshotId: id}); len(errs) > 0 {
					return usagef(cmd, "bad ID %q: it %s", id, strings.TrimPrefix(errs.Error(), "snapshot_id "))
				}
			}
			sb, err := a.sandboxKind().resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.createSnapshot(cmd.Context(), sb, cmp.Or(id, snapshotName(sb)), o)
		},
	}
	o = outputFlag(cmd, snapshotFormats...)
	return cmd
}

// bareSnapshot removes the "snapshot/" of the output of agbox.
func bareSnapshot(ref string) string { return strings.TrimPrefix(ref, "snapshot/") }

// snapshotName makes an ID.
func snapshotName(sb *agboxv1.SandboxHandle) string {
	id := sb.GetSandboxId()
	return cmp.Or(sb.GetName(), id[:min(len(id), idWidth)]) + "-" + uuid.NewString()[:8]
}

func (a *app) createSnapshot(ctx context.Context, sb *agboxv1.SandboxHandle, id string, o *output) error {
	all, err := a.conn().ListSnapshots(ctx, "", "")
	if err != nil {
		return err
	}
	// The daemon answers a repeated request with the snapshot that exists. A user expects the files of now.
	if old := snapshotWithID(all, id); old != nil {
		return a.snapshotTaken(ctx, old)
	}
	done := a.startSnapshotProgress(sb, id)
	made, err := a.conn().CreateSnapshot(ctx, sb.GetSandboxId(), id)
	done()
	switch {
	case isInterrupt(ctx):
		a.hint(fmt.Sprintf("the daemon goes on; \"agbox snapshot ls\" lists %s when it is complete", id))
		return err
	case client.Reason(err) == "SANDBOX_BUSY":
		return fmt.Errorf("another snapshot of sandbox %s is being made; try again when it is complete", nameOrID(sb))
	case err != nil:
		return a.sandboxRefused(ctx, "make a snapshot of", sb, err)
	}
	return a.printSnapshot(made, o)
}

// startSnapshotProgress shows progress after a second until the returned function is called.
func (a *app) startSnapshotProgress(sb *agboxv1.SandboxHandle, id string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		begun := time.Now()
		text := fmt.Sprintf("%s: making snapshot %s", nameOrID(sb), id)
		if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY {
			text += "; its processes are frozen meanwhile"
		}
		for wait.For(ctx, progressAfter) == nil {
			a.notes.say(text)
			a.notes.show(fmt.Sprintf("%s (%s)", text, span(time.Since(begun))))
		}
	}()
	return func() {
		cancel()
		<-ended
		a.notes.clear()
	}
}

// snapshotTaken says of what a snapshot was made whose ID is wanted for another.
func (a *app) snapshotTaken(ctx context.Context, s *agboxv1.Snapshot) error {
	of := ""
	if origins, err := a.origins(ctx); err == nil {
		of = " of sandbox " + origins.name(s)
	}
	return fmt.Errorf("snapshot %s exists: it was made%s %s ago; choose another ID, or remove it with \"agbox snapshot rm %s\"",
		s.GetSnapshotId(), of, age(s.GetCreatedAt().AsTime(), time.Now()), s.GetSnapshotId())
}

func (a *app) printSnapshot(s *agboxv1.Snapshot, o *output) error {
	switch {
	case o.format == "name":
		fmt.Fprintln(a.Out, s.GetSnapshotId())
		return nil
	case o.given():
		text, err := manifest.JSON(s)
		if err != nil {
			return err
		}
		return a.printAs(text, o)
	}
	fmt.Fprintf(a.Out, "snapshot/%s created\n", s.GetSnapshotId())
	a.hint(fmt.Sprintf("\"agbox run --snapshot %s\" makes a sandbox from it; in a manifest it is image: %s", s.GetSnapshotId(), s.GetImage()))
	return nil
}

func (a *app) snapshotListCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "ls [SANDBOX]", Aliases: []string{"list"}, Short: "List snapshots, of one sandbox or of all",
		Long: `List snapshots, newest first, of one sandbox or of all. SANDBOX is a name or an ID; a name also selects the snapshots of deleted sandboxes
that had it. A size includes the image of the sandbox, whose layers take no further space.`,
		Example: "  agbox snapshot ls\n  agbox snapshot ls web -o wide",
		Args:    atMostOne("at most one sandbox"), ValidArgsFunction: a.sandboxKind().first,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listSnapshots(cmd.Context(), bare(kindSandbox, strings.Join(args, "")), o)
		},
	}
	o = outputFlag(cmd, append([]string{"wide", "yaml"}, listFormats...)...)
	return cmd
}

func (a *app) listSnapshots(ctx context.Context, sandbox string, o *output) error {
	all, err := a.conn().ListSnapshots(ctx, "", "")
	if err != nil {
		return err
	}
	origins, err := a.origins(ctx)
	if err != nil {
		return err
	}
	if sandbox != "" {
		all = slices.DeleteFunc(all, func(s *agboxv1.Snapshot) bool { return !origins.is(s, sandbox) })
		if len(all) == 0 {
			if _, err := a.sandboxKind().resolve(ctx, sandbox); err != nil {
				return err
			}
		}
	}
	switch {
	case o.format == "name":
		for _, s := range all {
			fmt.Fprintln(a.Out, s.GetSnapshotId())
		}
	case o.given():
		return printList(a, all, o)
	case len(all) == 0:
		fmt.Fprintln(a.Err, `no snapshots; "agbox snapshot create SANDBOX" makes one`)
	default:
		a.printSnapshots(all, origins, o.format == "wide")
	}
	return nil
}

func (a *app) printSnapshots(all []*agboxv1.Snapshot, origins origins, wide bool) {
	t := &table{}
	header := []string{"SNAPSHOT", "SANDBOX", "SIZE", "AGE"}
	if wide {
		header = append(header, "SANDBOX ID", "OWNER", "IMAGE")
	}
	t.add(header...)
	for _, s := range all {
		row := []string{s.GetSnapshotId(), termsafe.Line(origins.name(s)), bytesText(s.GetSizeBytes()), age(s.GetCreatedAt().AsTime(), time.Now())}
		if wide {
			row = append(row, s.GetSandboxId(), dash(termsafe.Line(s.GetGatewayOwner())), s.GetImage())
		}
		t.add(row...)
	}
	t.write(a.Out)
}

// origins are sandboxes by ID, also deleted ones whose history is kept.
type origins map[string]*agboxv1.SandboxHandle

func (a *app) origins(ctx context.Context) (origins, error) {
	all, err := a.conn().ListSandboxes(ctx, true, nil)
	found := origins{}
	for _, sb := range all {
		found[sb.GetSandboxId()] = sb
	}
	return found, err
}

// name names the sandbox of a snapshot: "web", "web (deleted)", or the start of its ID.
func (o origins) name(s *agboxv1.Snapshot) string {
	id := s.GetSandboxId()
	sb := o[id]
	name := cmp.Or(sb.GetName(), id[:min(len(id), idWidth)])
	return name + textIf(sb == nil || sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED, " (deleted)")
}

// is reports whether a snapshot is of the sandbox with this name, ID or start of an ID.
func (o origins) is(s *agboxv1.Snapshot, ref string) bool {
	return o[s.GetSandboxId()].GetName() == ref || s.GetSandboxId() == ref || len(ref) >= minPrefix && strings.HasPrefix(s.GetSandboxId(), ref)
}

func (a *app) snapshotRemoveCommand() *cobra.Command {
	var ignore bool
	cmd := &cobra.Command{
		Use: "rm ID...", Aliases: []string{"remove", "delete"}, Short: "Remove snapshots",
		Long: `Remove snapshots, for good. A snapshot from which a sandbox was made, in any state, is refused: delete the sandbox first. The sandbox that it was
made of does not matter.`,
		Example: "  agbox snapshot ls\n  agbox snapshot rm tools-installed",
		Args:    atLeastOne(`the IDs of snapshots (see "agbox snapshot ls")`), ValidArgsFunction: a.snapshotIDs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.removeSnapshots(cmd.Context(), args, ignore) },
	}
	cmd.Flags().BoolVar(&ignore, "ignore-not-found", false, "a missing snapshot is no error")
	return cmd
}

func (a *app) removeSnapshots(ctx context.Context, ids []string, ignore bool) error {
	failed, err := forEach(ctx, ids, func(ref string) error {
		id := bareSnapshot(ref)
		err := a.conn().RemoveSnapshot(ctx, id)
		switch {
		case err == nil:
			fmt.Fprintf(a.Out, "snapshot/%s removed\n", id)
		case client.IsNotFound(err) && ignore:
			return nil
		case client.IsNotFound(err):
			return noSnapshot(id)
		}
		return err
	}, func(_ string, err error) { a.complain(err) })
	if err != nil {
		return err
	}
	return outcomeOf(ctx, failed)
}

func noSnapshot(id string) error {
	return fmt.Errorf("snapshot %q not found; \"agbox snapshot ls\" lists them", id)
}

// snapshotImage returns the image of the snapshot with this ID.
func (a *app) snapshotImage(ctx context.Context, ref string) (string, error) {
	id := bareSnapshot(ref)
	all, err := a.conn().ListSnapshots(ctx, "", "")
	if err != nil {
		return "", err
	}
	if s := snapshotWithID(all, id); s != nil {
		return s.GetImage(), nil
	}
	return "", noSnapshot(id)
}

func snapshotWithID(all []*agboxv1.Snapshot, id string) *agboxv1.Snapshot {
	if i := slices.IndexFunc(all, func(s *agboxv1.Snapshot) bool { return s.GetSnapshotId() == id }); i >= 0 {
		return all[i]
	}
	return nil
}

// snapshotIDs completes the IDs of snapshots that are not on the line yet.
func (a *app) snapshotIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := a.conn().ListSnapshots(cmd.Context(), "", "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, s := range all {
		if !slices.Contains(args, s.GetSnapshotId()) {
			ids = append(ids, s.GetSnapshotId())
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
