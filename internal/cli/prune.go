package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// pruneOptions are the flags of apply that remove what the manifests lack.
type pruneOptions struct {
	prune, all bool
	labels     *selector
}

func (a *app) pruneFlags(cmd *cobra.Command, o *pruneOptions) {
	cmd.Flags().BoolVar(&o.prune, "prune", false, "then delete the sandboxes and agents that -l or --all select and the manifests lack")
	cmd.Flags().BoolVar(&o.all, "all", false, "with --prune: select all that have a name")
	o.labels = a.selectorFlag(cmd, "with --prune: select those with these labels")
}

// check refuses flags that leave open what is selected.
func (o pruneOptions) check(cmd *cobra.Command) error {
	switch {
	case !o.prune && (o.all || o.labels.given()):
		return usagef(cmd, "-l and --all select what --prune deletes; without it they have no effect")
	case o.prune && o.all == o.labels.given():
		return usagef(cmd, "--prune needs -l SELECTOR or --all: one of the two")
	}
	return nil
}

// unselected refuses manifests that the selector does not select: once their file is gone, their objects would not be pruned.
func (a *app) unselected(docs []document, o pruneOptions) error {
	failed := false
	for _, d := range docs {
		if labels := d.labels(); o.prune && !o.labels.matches(labels) {
			a.complain(fmt.Errorf("%s %s (%s, line %d): its labels do not match -l %s, so it would never be pruned; add the labels", d.kind(), d.Name, d.file, d.Line, o.labels))
			failed = true
		}
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (d document) labels() map[string]string {
	if d.Agent != nil {
		return d.Agent.GetLabels()
	}
	return d.Spec.GetLabels()
}

// prune deletes agents, then sandboxes. Agents that are not selected are kept for the next sandbox of the name, as are volumes.
func (a *app) prune(ctx context.Context, docs []document, o applyOptions) error {
	agents, err := surplus(ctx, a.agentKind(), docs, o.pruneOptions)
	if err != nil {
		return err
	}
	sandboxes, err := surplus(ctx, a.sandboxKind(), docs, o.pruneOptions)
	if err != nil {
		return err
	}
	sandboxes, failed, err := a.withoutDeclared(ctx, sandboxes, docs)
	if err != nil {
		return err
	}
	housed, err := a.housed(ctx)
	if err != nil {
		return err
	}
	stay := func(sb *agboxv1.SandboxHandle) {
		rest := slices.DeleteFunc(housed[sb.GetSandboxId()], func(one *agboxv1.AgentHandle) bool {
			return a.agentKind().withID(agents, one.GetAgentId()) != nil
		})
		if len(rest) > 0 {
			fmt.Fprintf(a.Err, "sandbox/%s: %s\n", nameOrID(sb), fateOf(rest, sb, true))
		}
	}
	if o.dryRun {
		rehearsePrune(a, a.agentKind(), agents, nil)
		rehearsePrune(a, a.sandboxKind(), sandboxes, stay)
		return outcomeOf(ctx, failed)
	}
	wait := verbOptions{wait: o.wait, timeout: o.timeout}
	agentsErr := requestAll(ctx, a, a.agentKind(), agents, failed, pruning(deleteAgents), wait)
	if client.IsUnavailable(agentsErr) || ctx.Err() != nil {
		return agentsErr
	}
	return requestAll(ctx, a, a.sandboxKind(), sandboxes, agentsErr != nil, pruning(verb[*agboxv1.SandboxHandle]{
		name: "delete", want: string(client.Deleted), method: (*client.Client).DeleteSandboxKeepingAgents, accepted: stay,
	}), wait)
}

// pruning is a request to delete what was listed. It succeeds for what is gone since.
func pruning[H handle](v verb[H]) verb[H] {
	request := v.method
	v.doing = "pruned"
	v.method = func(c *client.Client, ctx context.Context, id string) error {
		if err := request(c, ctx, id); !client.IsNotFound(err) {
			return err
		}
		return nil
	}
	return v
}

func rehearsePrune[H handle](a *app, k kind[H], all []H, also func(H)) {
	for _, one := range all {
		fmt.Fprintf(a.Out, "%s pruned (dry run)\n", k.label(one))
		if also != nil {
			also(one)
		}
	}
}

// surplus returns the selected objects that no manifest names. Objects without a name cannot come from a manifest, and those of "agbox run"
// do not: they stay.
func surplus[H handle](ctx context.Context, k kind[H], docs []document, o pruneOptions) ([]H, error) {
	found, err := k.selected(ctx, o.labels)
	return slices.DeleteFunc(found, func(one H) bool {
		name := one.GetName()
		return name == "" || k.deleting(one) || one.GetLabels()[runLabel] == name ||
			slices.ContainsFunc(docs, func(d document) bool { return d.kind() == k.word && d.Name == name })
	}), err
}

// withoutDeclared leaves out, with an error for each, the sandboxes that an agent of the manifests needs.
func (a *app) withoutDeclared(ctx context.Context, sandboxes []*agboxv1.SandboxHandle, docs []document) (_ []*agboxv1.SandboxHandle, failed bool, err error) {
	for _, d := range docs {
		if d.Agent == nil {
			continue
		}
		sb, err := a.sandboxKind().resolve(ctx, d.Agent.GetSandboxId())
		if err != nil && !a.sandboxKind().isNotFound(err) { // a dry run creates no sandbox
			return nil, failed, err
		}
		if i := slices.IndexFunc(sandboxes, func(one *agboxv1.SandboxHandle) bool { return err == nil && one.GetSandboxId() == sb.GetSandboxId() }); i >= 0 {
			a.complain(fmt.Errorf("sandbox %s is not pruned: agent %s (%s, line %d) is in it; add a manifest of the sandbox, or change the agent's sandbox_id",
				nameOrID(sb), d.Name, d.file, d.Line))
			failed = true
			sandboxes = slices.Delete(sandboxes, i, i+1)
		}
	}
	return sandboxes, failed, nil
}
