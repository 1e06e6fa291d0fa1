package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/termsafe"
)

// exitDiffError is the exit code of diff for any error; 1 means a difference.
const exitDiffError = 2

func (a *app) diffCommand() *cobra.Command {
	var files manifestFiles
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
		p, err := a.planOf(ctx, d, declared, applyOptions{dryRun: true})
		switch {
		case err != nil:
			return err
		case p.verdict == verdictCreated:
			fmt.Fprintf(a.Out, "%s/%s does not exist\n", d.kind(), d.Name)
		case len(p.changes) > 0:
			fmt.Fprintf(a.Out, "%s/%s\n", d.kind(), d.Name)
		default:
			return nil
		}
		differ = true
		a.printChanges(ctx, p)
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

func (a *app) printChanges(ctx context.Context, p *plan) {
	colour := colours(a.Out)
	for _, change := range a.sandboxesByName(ctx, p) {
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
	line := termsafe.Line(fmt.Sprintf("  %s %s: %s", sign, c.Path, value))
	if immutable {
		line += "  (not in place; needs --replace)"
	}
	if colour {
		line = "\x1b[" + paint + "m" + line + "\x1b[0m"
	}
	fmt.Fprintln(termsafe.Unfiltered(w), line)
}

// sandboxesByName returns the changes with names in place of the IDs of sandboxes that exist.
func (a *app) sandboxesByName(ctx context.Context, p *plan) []validate.Change {
	i := slices.IndexFunc(p.changes, func(one validate.Change) bool { return one.Path == pathSandbox })
	if i < 0 || p.agent == nil {
		return p.changes
	}
	all, err := a.live(ctx)
	if err != nil {
		return p.changes // keep the IDs
	}
	names, changes := sandboxNames(all), slices.Clone(p.changes)
	changes[i].Old, changes[i].New = cmp.Or(names[changes[i].Old], changes[i].Old), cmp.Or(names[changes[i].New], changes[i].New)
	return changes
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
