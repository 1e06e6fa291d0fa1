package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// Widths that make a table fit 80 columns; -o wide cuts nothing.
const (
	tableWidth = 80
	nameWidth  = 20
	idWidth    = 12
	imageWidth = 20
)

type getOptions struct {
	output string
	labels []string
	all    bool
	watch  bool
}

func (a *app) getCommand() *cobra.Command {
	formats := []string{"wide", "yaml", "json", "name"}
	var o getOptions
	cmd := &cobra.Command{
		Use: "get [NAME...]", SuggestFor: []string{"ps", "ls", "list", "status"}, Short: "List sandboxes", ValidArgsFunction: a.completeNames,
		Long: `List sandboxes, newest first. "-o yaml" prints manifests that can be applied again. With -w, print a sandbox
again on each change, until ^C or until all named ones are deleted.`,
		Example: "  agbox get\n  agbox get -l team=a -w\n  agbox get web -o wide\n  agbox get web -o yaml > web.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, o.output, formats...); err != nil {
				return err
			}
			if len(args) > 0 && len(o.labels) > 0 {
				return usagef(cmd, "expected names or -l, not both")
			}
			if o.watch {
				if o.output != "" && o.output != "wide" {
					return usagef(cmd, "-w prints a table: without -o, or with -o wide; \"agbox events -f -o json\" is for programs")
				}
				return a.watchSandboxes(cmd, args, o)
			}
			return a.get(cmd, args, o)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	cmd.Flags().StringSliceVarP(&o.labels, "selector", "l", nil, "only those with these labels: key=value,...")
	cmd.Flags().BoolVar(&o.all, "all", false, "also deleted ones, while their history is kept")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and print what changes")
	completeFlag(cmd, "output", formats...)
	onFlag(cmd, "selector", a.completeLabels)
	return cmd
}

func (a *app) get(cmd *cobra.Command, refs []string, o getOptions) error {
	ctx := cmd.Context()
	c, err := a.client()
	if err != nil {
		return err
	}
	found, failed, err := a.selected(cmd, c, refs, o)
	if err != nil {
		return err
	}
	a.warnEngine(ctx, c)
	if failed && len(found) == 0 {
		return &exitError{code: exitFailed} // an empty list would look like an answer
	}
	if err := a.printSandboxes(ctx, c, found, len(refs) == 1, o.output); err != nil {
		return err
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

// selected returns what refs name, or what the selector matches. failed tells that some ref named nothing.
func (a *app) selected(cmd *cobra.Command, c *client.Client, refs []string, o getOptions) (found []*agboxv1.SandboxHandle, failed bool, err error) {
	selector, err := parseSelector(cmd, o.labels)
	if err != nil {
		return nil, false, err
	}
	if len(refs) == 0 {
		found, err = c.ListSandboxes(cmd.Context(), o.all, selector)
		return found, false, err
	}
	for _, ref := range refs {
		sb, err := a.resolve(cmd.Context(), ref)
		if client.IsUnavailable(err) || cmd.Context().Err() != nil {
			return nil, false, err
		}
		if err != nil {
			a.complain(err)
			failed = true
			continue
		}
		found = append(found, sb)
	}
	return found, failed, nil
}

func (a *app) printSandboxes(ctx context.Context, c *client.Client, found []*agboxv1.SandboxHandle, single bool, output string) error {
	switch output {
	case "yaml", "json":
		return a.printDocuments(ctx, c, found, single, output)
	case "name":
		for _, sb := range found {
			fmt.Fprintln(a.Out, nameOrID(sb))
		}
		return nil
	}
	if len(found) == 0 {
		if !single {
			fmt.Fprintln(a.Err, "no sandboxes; \"agbox apply -f FILE\" makes one")
		}
		return nil
	}
	a.printTable(found, output == "wide")
	return nil
}

func (a *app) printTable(found []*agboxv1.SandboxHandle, wide bool) {
	style := quiet
	for _, sb := range found {
		if trouble(sb) != "" {
			style = noisy
		}
	}
	if wide {
		style = full
	}
	t := a.sandboxTable(style)
	for _, sb := range found {
		t.add(style.row(sb)...)
	}
	t.write(a.Out)
}

func (a *app) sandboxTable(style rowStyle) *table {
	t := &table{limit: tableWidth}
	if style == full {
		t.limit = 0
	}
	if colours(a.Out) {
		t.paint = paintState
	}
	t.add(style.header()...)
	return t
}
