package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Widths that make a table fit 80 columns; -o wide cuts nothing.
const (
	tableWidth = 80
	nameWidth  = 20
	idWidth    = 12
	imageWidth = 20
)

type getOptions struct {
	output *output
	labels *selector
	all    bool
	watch  bool
}

func (a *app) getCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use: "get [NAME...]", SuggestFor: []string{"ps", "ls", "list", "status"}, Short: "List sandboxes", ValidArgsFunction: a.sandboxKind().names,
		Long: `List sandboxes, newest first. "-o yaml" prints manifests that can be applied again. With -w, print a sandbox
again on each change, until ^C or until all named ones are deleted.`,
		Example: "  agbox get\n  agbox get -l 'team in (a, b),!ci' -w\n  agbox get web -o wide\n  agbox get web -o yaml > web.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && o.labels.given() {
				return usagef(cmd, "expected names or -l, not both")
			}
			if o.watch {
				if o.output.given() {
					return usagef(cmd, "-w prints a table: without -o, or with -o wide; \"agbox events -f -o json\" is for programs")
				}
				return a.watchSandboxes(cmd, args, o)
			}
			return a.get(cmd, args, o)
		},
	}
	o.output = outputFlag(cmd, objectFormats...)
	o.labels = a.selectorFlag(cmd, "only those with these labels")
	cmd.Flags().BoolVar(&o.all, "all", false, "also deleted ones, while their history is kept")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "keep running and print changes")
	return cmd
}

func (a *app) get(cmd *cobra.Command, refs []string, o getOptions) error {
	matching := func(ctx context.Context) ([]*agboxv1.SandboxHandle, error) {
		equal, _ := o.labels.equal()
		all, err := a.conn().ListSandboxes(ctx, o.all, equal)
		return having(o.labels, all), err
	}
	return get(cmd.Context(), a, a.sandboxKind(), refs, o.output, matching)
}

// get prints the objects that refs name, or without refs those that matching returns. A ref that names none is complained of, and the
// others are printed.
func get[H handle](ctx context.Context, a *app, k kind[H], refs []string, o *output,
	matching func(context.Context) ([]H, error)) error {
	found, failed, err := find(ctx, a, k, refs, nil)
	if len(refs) == 0 {
		found, err = matching(ctx)
	}
	if err != nil {
		return err
	}
	a.warnEngine(ctx)
	if failed && len(found) == 0 {
		return &exitError{code: exitFailed} // an empty list would look like an answer
	}
	switch {
	case o.format == "name":
		for _, one := range found {
			fmt.Fprintln(a.Out, k.name(one))
		}
	case o.given():
		err = printDocuments(ctx, a, k, found, len(refs) == 1, o)
	case len(found) == 0:
		fmt.Fprintln(a.Err, k.empty)
	default:
		err = k.table(ctx, found, o.format == "wide")
	}
	if err != nil {
		return err
	}
	return outcomeOf(ctx, failed)
}

func (a *app) printTable(_ context.Context, found []*agboxv1.SandboxHandle, wide bool) error {
	style := quiet
	switch {
	case wide:
		style = full
	case slices.ContainsFunc(found, func(sb *agboxv1.SandboxHandle) bool { return trouble(sb) != "" }):
		style = noisy
	}
	t := a.sandboxTable(style)
	for _, sb := range found {
		t.add(style.row(sb)...)
	}
	t.write(a.Out)
	return nil
}

func (a *app) sandboxTable(style rowStyle) *table {
	t := newTable(a.Out, style == full)
	t.paintStates(a.Out, 2)
	t.add(style.header()...)
	return t
}
