package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

type deleteOptions struct {
	files, labels []string
	wait, ignore  bool
	keepAgents    bool
	timeout       time.Duration
}

func (a *app) deleteCommand() *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use: "delete (NAME... | -f FILE | -l KEY=VALUE)", SuggestFor: []string{"rm", "remove", "kill"}, Short: "Remove sandboxes with their files, logs and agents",
		Long: `Remove sandboxes with their files, logs and agents, and with the agents' conversations. The name is free at once; --wait returns
when everything is removed. Busy agents have half a minute to finish and save their work. --keep-agents keeps the agents with their
conversations: they continue in the next sandbox of the name, or in the one of "agbox agent move". Agents that are already moving to
another sandbox are always kept.`,
		Example:           "  agbox delete hello --wait\n  agbox delete -f hello.yaml\n  agbox delete hello --keep-agents",
		ValidArgsFunction: a.sandboxKind().names,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, one := range []int{len(args), len(o.files), len(o.labels)} {
				if one > 0 {
					given++
				}
			}
			if given != 1 {
				return usagef(cmd, "expected names, or -f, or -l: one of the three")
			}
			return a.delete(cmd, args, o)
		},
	}
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "delete the sandboxes and agents of manifests: file, directory, or -")
	cmd.Flags().StringSliceVarP(&o.labels, "selector", "l", nil, "delete all sandboxes with these labels: key=value,...")
	cmd.Flags().BoolVar(&o.keepAgents, "keep-agents", false, "keep agents with their conversations for the next sandbox of the name")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "return once everything is removed")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultWait, "with --wait: give up after this long")
	onFlag(cmd, "filename", completeManifests)
	onFlag(cmd, "selector", a.completeLabels)
	cmd.Flags().BoolVar(&o.ignore, "ignore-not-found", false, "a missing sandbox is no error")
	return cmd
}

func (a *app) delete(cmd *cobra.Command, names []string, o deleteOptions) error {
	ctx := cmd.Context()
	if len(o.files) > 0 {
		docs, err := a.readManifests(ctx, o.files)
		if err != nil {
			return err
		}
		return a.deleteDocuments(ctx, docs, o)
	}
	var gone []*agboxv1.SandboxHandle
	var err error
	failed := false
	if len(o.labels) > 0 {
		selector, err := parseSelector(cmd, o.labels)
		if err != nil {
			return err
		}
		gone, err = a.deleteMatching(ctx, selector, o)
		if err != nil {
			return err
		}
	} else if gone, failed, err = a.deleteNamed(ctx, names, o); err != nil {
		return err
	}
	return a.awaitGone(ctx, gone, failed, o)
}

// awaitGone waits with --wait, and returns the outcome.
func (a *app) awaitGone(ctx context.Context, gone []*agboxv1.SandboxHandle, failed bool, o deleteOptions) error {
	if o.wait {
		failed = waitAll(ctx, a, a.sandboxKind(), gone, string(client.Deleted), o.timeout) || failed
	}
	return outcomeOf(ctx, failed)
}

// deleteDocuments deletes agents before their sandboxes, unless agents are kept.
func (a *app) deleteDocuments(ctx context.Context, docs []document, o deleteOptions) error {
	var names, agents []string
	for _, d := range docs {
		switch {
		case d.Agent == nil:
			names = append(names, d.Name)
		case !o.keepAgents:
			agents = append(agents, d.Name)
		}
	}
	var agentsFailed error
	if len(agents) > 0 {
		agentsFailed = request(ctx, a, a.agentKind(), agents, deleteAgents, verbOptions{wait: o.wait, ignore: o.ignore, timeout: o.timeout})
		if client.IsUnavailable(agentsFailed) || ctx.Err() != nil {
			return agentsFailed
		}
	}
	gone, failed, err := a.deleteNamed(ctx, names, o)
	if err != nil {
		return err
	}
	return a.awaitGone(ctx, gone, failed || agentsFailed != nil, o)
}

func (a *app) deleteMatching(ctx context.Context, selector map[string]string, o deleteOptions) ([]*agboxv1.SandboxHandle, error) {
	housed, err := a.housed(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := a.deleteSelected(ctx, selector, o)
	if err == nil && len(ids) == 0 {
		fmt.Fprintln(a.Err, "no sandbox has these labels")
	}
	var gone []*agboxv1.SandboxHandle
	for _, id := range ids {
		sb, err := a.conn().GetSandbox(ctx, id)
		if err != nil {
			sb = &agboxv1.SandboxHandle{SandboxId: id} // the delete was accepted; only the name is unknown
		}
		a.printDeleting(sb, housed[id], o)
		gone = append(gone, sb)
	}
	return gone, err
}

// deleteSelected deletes all with one request, or one after the other if agents are kept. With an error it returns the sandboxes
// that were deleted before.
func (a *app) deleteSelected(ctx context.Context, selector map[string]string, o deleteOptions) (ids []string, err error) {
	if !o.keepAgents || len(selector) == 0 { // the daemon refuses an empty selector, which lists all sandboxes
		return a.conn().DeleteSandboxes(ctx, selector)
	}
	all, err := a.conn().ListSandboxes(ctx, false, selector)
	if err != nil {
		return nil, err
	}
	for _, sb := range all {
		if sb.GetDesiredState() == wantDeleted {
			continue
		}
		if err := a.conn().DeleteSandboxKeepingAgents(ctx, sb.GetSandboxId()); err != nil && !client.IsNotFound(err) {
			return ids, err
		}
		ids = append(ids, sb.GetSandboxId())
	}
	return ids, nil
}

func (a *app) deleteNamed(ctx context.Context, names []string, o deleteOptions) (gone []*agboxv1.SandboxHandle, failed bool, err error) {
	housed, err := a.housed(ctx)
	if err != nil {
		return nil, true, err
	}
	remove := a.conn().DeleteSandbox
	if o.keepAgents {
		remove = a.conn().DeleteSandboxKeepingAgents
	}
	failed, err = a.each(ctx, names, func(name string) error {
		sb, err := a.resolve(ctx, name)
		if err == nil {
			err = remove(ctx, sb.GetSandboxId())
		}
		switch {
		case err == nil:
			a.printDeleting(sb, housed[sb.GetSandboxId()], o)
			gone = append(gone, sb)
		case o.ignore && a.sandboxKind().isNotFound(err):
			return nil
		}
		return err
	})
	return gone, failed, err
}

// printDeleting prints what happens to the agents, and that the delete was accepted unless the command waits for its end.
func (a *app) printDeleting(sb *agboxv1.SandboxHandle, agents []*agboxv1.AgentHandle, o deleteOptions) {
	if len(agents) > 0 {
		fmt.Fprintf(a.Err, "sandbox/%s: %s\n", nameOrID(sb), fateOf(agents, sb, o.keepAgents))
	}
	if !o.wait {
		fmt.Fprintf(a.Out, "sandbox/%s deleting\n", nameOrID(sb))
	}
}
