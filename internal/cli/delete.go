package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
)

type deleteOptions struct {
	verbOptions
	files      manifestFiles
	keepAgents bool
	volumes    bool
}

func (a *app) deleteCommand() *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use: "delete (NAME... | -f FILE | -l SELECTOR)", SuggestFor: []string{"rm", "remove", "kill"}, Short: "Remove sandboxes with their files, logs and agents",
		Long: `Remove sandboxes with their files, logs and agents, and with the agents' conversations. The name is free at once; --wait returns
when everything is removed. Busy agents have half a minute to finish and save their work. --keep-agents keeps the agents with their
conversations: they continue in the next sandbox of the name, or in the one of "agbox agent move". Agents that are already moving to
another sandbox are always kept.

Named volumes are kept for the next sandbox of the name. --volumes removes all volumes of the name for good.`,
		Example:           "  agbox delete hello --wait\n  agbox delete -f hello.yaml\n  agbox delete hello --keep-agents\n  agbox delete hello --volumes",
		ValidArgsFunction: a.sandboxKind().names,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, one := range []bool{len(args) > 0, len(o.files.paths) > 0, o.labels.given()} {
				if one {
					given++
				}
			}
			if given != 1 {
				return usagef(cmd, "expected names, or -f, or -l: one of the three")
			}
			if o.files.recursive && len(o.files.paths) == 0 {
				return usagef(cmd, "-R is for -f")
			}
			return a.delete(cmd, args, o)
		},
	}
	a.fileFlag(cmd, &o.files)
	o.labels = a.selectorFlag(cmd, "delete all sandboxes with these labels")
	cmd.Flags().BoolVar(&o.keepAgents, "keep-agents", false, "keep agents with their conversations for the next sandbox of the name")
	cmd.Flags().BoolVar(&o.volumes, "volumes", false, "also remove all named volumes of the sandboxes' names")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "return once everything is removed")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.timeout, defaultWait), "timeout", "with --wait: give up after this long")
	cmd.Flags().BoolVar(&o.ignore, "ignore-not-found", false, "a missing sandbox is no error")
	return cmd
}

func (a *app) delete(cmd *cobra.Command, names []string, o deleteOptions) error {
	ctx := cmd.Context()
	switch {
	case len(o.files.paths) > 0:
		docs, err := a.readManifests(ctx, o.files)
		if err != nil {
			return err
		}
		return a.deleteDocuments(ctx, docs, o)
	case o.labels.given():
		return a.deleteMatching(ctx, o)
	}
	return a.deleteNamed(ctx, names, o)
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
		agentsFailed = request(ctx, a, a.agentKind(), agents, deleteAgents, o.verbOptions)
		if client.IsUnavailable(agentsFailed) || ctx.Err() != nil {
			return agentsFailed
		}
	}
	return cmp.Or(a.deleteNamed(ctx, names, o), agentsFailed)
}

func (a *app) deleteNamed(ctx context.Context, names []string, o deleteOptions) error {
	v, err := a.deleteVerb(ctx, o)
	if err != nil {
		return err
	}
	return request(ctx, a, a.sandboxKind(), names, v, o.verbOptions)
}

// deleteMatching deletes all sandboxes with one request if the daemon knows the selector, and neither keeps agents nor
// removes volumes; otherwise one by one.
func (a *app) deleteMatching(ctx context.Context, o deleteOptions) error {
	k := a.sandboxKind()
	v, err := a.deleteVerb(ctx, o)
	if err != nil {
		return err
	}
	var gone []*agboxv1.SandboxHandle
	equal, whole := o.labels.equal()
	each := o.keepAgents || o.volumes || !whole
	if each {
		gone, err = k.selected(ctx, o.labels)
		gone = slices.DeleteFunc(gone, k.deleting)
	} else {
		var ids []string
		ids, err = a.conn().DeleteSandboxes(ctx, equal)
		gone = a.byName(ctx, ids)
	}
	switch {
	case err != nil:
		return err
	case len(gone) == 0:
		fmt.Fprintln(a.Err, k.noneSelected())
	case each:
		request := v.method
		v.method = func(c *client.Client, ctx context.Context, id string) error {
			if err := request(c, ctx, id); !client.IsNotFound(err) {
				return err
			}
			return nil // purged since it was listed
		}
		return requestAll(ctx, a, k, gone, false, v, o.verbOptions)
	}
	for _, sb := range gone {
		v.accepted(sb)
	}
	return awaitRequests(ctx, a, k, gone, false, v, o.verbOptions)
}

// deleteVerb is the request to delete a sandbox. It says what happens to the agents.
func (a *app) deleteVerb(ctx context.Context, o deleteOptions) (verb[*agboxv1.SandboxHandle], error) {
	housed, err := a.housed(ctx)
	v := verb[*agboxv1.SandboxHandle]{
		name: "delete", doing: "deleting", want: string(client.Deleted), method: (*client.Client).DeleteSandbox,
		accepted: func(sb *agboxv1.SandboxHandle) {
			if agents := housed[sb.GetSandboxId()]; len(agents) > 0 {
				fmt.Fprintf(a.Err, "sandbox/%s: %s\n", nameOrID(sb), fateOf(agents, sb, o.keepAgents))
			}
		},
	}
	if o.keepAgents || o.volumes {
		v.method = func(c *client.Client, ctx context.Context, id string) error {
			return c.DeleteSandboxWith(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id, KeepAgents: o.keepAgents, Volumes: o.volumes})
		}
	}
	return v, err
}
