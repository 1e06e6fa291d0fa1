package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
)

// exitDiffError is the exit code of diff for any error; 1 means a difference.
const exitDiffError = 2

func (a *app) diffCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use: "diff -f FILE", Short: "Show what apply would change",
		Long: `Show how manifests differ from the sandboxes and agents of their names: "+" is added, "-" removed, "~" changed. Values of envs are not
shown. Exits with 0 if nothing differs, 1 if something differs, and 2 after an error.`,
		Example: "  agbox diff -f hello.yaml && echo as written",
		Args:    onlyFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := a.manifests(cmd, files)
			if err == nil {
				err = a.diff(cmd.Context(), docs)
			}
			return diffError(cmd.Context(), err)
		},
	}
	a.fileFlag(cmd, &files)
	return cmd
}

// diffError gives an error the exit code 2, unless it has one or a signal ended the command.
func diffError(ctx context.Context, err error) error {
	var exit *exitError
	var usage *usageError
	if err == nil || errors.As(err, &exit) || errors.As(err, &usage) || isInterrupt(ctx) {
		return err
	}
	return &exitError{code: exitDiffError, err: err}
}

func (a *app) diff(ctx context.Context, docs []document) error {
	differ := false
	declared := sandboxNamesOf(docs)
	failed, err := forEach(ctx, sandboxesFirst(docs), func(d document) error {
		p, err := a.previewOf(ctx, d, declared)
		switch {
		case err != nil:
			return err
		case p.absent:
			fmt.Fprintf(a.Out, "%s/%s does not exist\n", d.kind(), d.Name)
		case len(p.changes) > 0:
			fmt.Fprintf(a.Out, "%s/%s\n", d.kind(), d.Name)
		default:
			return nil
		}
		differ = true
		a.printChanges(p)
		return nil
	}, a.complainOf)
	switch {
	case err != nil:
		return err
	case failed:
		return &exitError{code: exitDiffError}
	case differ:
		return &exitError{code: exitFailed}
	}
	return nil
}

// preview is what applying a document would do.
type preview struct {
	absent  bool                   // it would be created
	old     *agboxv1.SandboxHandle // nil for an agent, and if absent
	changes []validate.Change
	// immutable are the changed paths that need --replace.
	immutable []string
}

func (a *app) previewOf(ctx context.Context, d document, declared []string) (preview, error) {
	if d.Agent != nil {
		return a.previewAgent(ctx, d, declared)
	}
	return a.preview(ctx, d)
}

// preview compares a document after all checks: local ones, and those of the daemon if the sandbox exists.
func (a *app) preview(ctx context.Context, d document) (preview, error) {
	if errs := d.rules(); len(errs) > 0 {
		return preview{}, errs
	}
	old, err := a.sandboxKind().holder(ctx, d.Name)
	if err != nil {
		return preview{}, err
	}
	if old == nil {
		if err := a.wouldCreate(ctx, d, ""); err != nil {
			return preview{}, err
		}
		return preview{absent: true, changes: validate.Diff(&agboxv1.CreateSpec{}, d.Spec)}, nil
	}
	_, err = a.conn().UpdateSandbox(ctx, &agboxv1.UpdateSandboxRequest{SandboxId: old.GetSandboxId(), CreateSpec: d.Spec, DryRun: true})
	p := preview{old: old, changes: validate.Diff(old.GetSpec(), d.Spec), immutable: client.ImmutableFields(err)}
	if err != nil && p.immutable == nil {
		return preview{}, err
	}
	return p, nil
}

// rehearse prints what applyDocument would do. declared are the sandboxes that the same manifests create.
func (a *app) rehearse(ctx context.Context, d document, replace bool, declared []string) error {
	p, err := a.previewOf(ctx, d, declared)
	if err != nil {
		return err
	}
	what := "configured" + moveAside(d, p.changes)
	switch {
	case p.absent:
		what = "created"
	case replace && (len(p.immutable) > 0 || p.old.GetState() == agboxv1.SandboxState_SANDBOX_STATE_FAILED):
		what = "replaced"
	case len(p.immutable) > 0:
		what = "refused"
	case len(p.changes) == 0:
		what = "unchanged"
	}
	fmt.Fprintf(a.Out, "%s/%s %s (dry run)\n", d.kind(), d.Name, what)
	a.printChanges(p)
	switch {
	case what == "refused":
		return immutableError(d, p.immutable)
	case what != "replaced" || p.old == nil:
		return nil
	}
	housed, err := a.housed(ctx)
	if agents := housed[p.old.GetSandboxId()]; len(agents) > 0 {
		fmt.Fprintf(a.Out, "  %s\n", comeAlong(agents))
	}
	return err
}

func (a *app) printChanges(p preview) {
	colour := colours(a.Out)
	for _, change := range p.changes {
		printChange(a.Out, change, slices.Contains(p.immutable, change.Path), colour)
	}
}

func printChange(w io.Writer, c validate.Change, immutable, colour bool) {
	sign, value, paint := "~", c.Old+" -> "+c.New, "33"
	switch {
	case c.Old == "":
		sign, value, paint = "+", c.New, "32"
	case c.New == "":
		sign, value, paint = "-", c.Old, "31"
	}
	line := oneLine(fmt.Sprintf("  %s %s: %s", sign, c.Path, value))
	if immutable {
		line += "  (not in place; needs --replace)"
	}
	if colour {
		line = "\x1b[" + paint + "m" + line + "\x1b[0m"
	}
	fmt.Fprintln(w, line)
}

// previewAgent compares a document that has passed all checks.
func (a *app) previewAgent(ctx context.Context, d document, declared []string) (preview, error) {
	spec, err := a.agentSpec(ctx, d)
	var missing *notFoundError
	if errors.As(err, &missing) && slices.Contains(declared, d.Agent.GetSandboxId()) {
		spec, err = d.Agent, nil // the sandbox has no ID yet; its name is used instead
	}
	if err != nil {
		return preview{}, err
	}
	old, err := a.agentKind().holder(ctx, d.Name)
	if err != nil {
		return preview{}, err
	}
	switch {
	case old == nil && missing != nil:
		return preview{absent: true, changes: newAgentFields(spec)}, nil
	case old == nil:
		_, err := a.conn().CreateAgent(ctx, &agboxv1.CreateAgentRequest{Spec: spec, AgentId: uuid.NewString(), Name: d.Name, DryRun: true})
		return preview{absent: true, changes: newAgentFields(spec)}, err
	}
	changes, fixed := agentDifferences(old, spec)
	return preview{changes: a.sandboxesByName(ctx, changes), immutable: fixed}, nil
}

// sandboxesByName replaces the sandbox IDs of changes by names, if there are any.
func (a *app) sandboxesByName(ctx context.Context, changes []validate.Change) []validate.Change {
	i := slices.IndexFunc(changes, func(one validate.Change) bool { return one.Path == pathSandbox })
	if i < 0 {
		return changes
	}
	all, err := a.live(ctx)
	if err != nil {
		return changes // keep the IDs
	}
	names := sandboxNames(all)
	changes[i].Old, changes[i].New = cmp.Or(names[changes[i].Old], changes[i].Old), cmp.Or(names[changes[i].New], changes[i].New)
	return changes
}

// newAgentFields returns the fields of a new agent, without defaults.
func newAgentFields(spec *agboxv1.AgentSpec) []validate.Change {
	changes := validate.DiffAgent(nil, spec)
	fields := spec.ProtoReflect()
	return slices.DeleteFunc(changes, func(one validate.Change) bool {
		fd := fields.Descriptor().Fields().ByTextName(one.Path)
		return fd != nil && !fields.Has(fd)
	})
}

// sandboxNamesOf returns the names of the sandboxes among the documents.
func sandboxNamesOf(docs []document) (list []string) {
	for _, d := range docs {
		if d.Agent == nil {
			list = append(list, d.Name)
		}
	}
	return list
}
