package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// Widths that make a table fit 80 columns; -o wide cuts nothing.
const (
	nameWidth   = 20
	idWidth     = 12
	imageWidth  = 20
	statusWidth = 60
)

type getOptions struct {
	output string
	labels []string
	all    bool
}

func (a *app) getCommand() *cobra.Command {
	formats := []string{"wide", "yaml", "json", "name"}
	var o getOptions
	cmd := &cobra.Command{
		Use: "get [NAME...]", SuggestFor: []string{"ps", "ls", "list", "status"}, Short: "List sandboxes", ValidArgsFunction: a.completeNames,
		Long: "List sandboxes, newest first. \"-o yaml\" prints manifests that can be applied again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, o.output, formats...); err != nil {
				return err
			}
			if len(args) > 0 && len(o.labels) > 0 {
				return usagef(cmd, "expected names or -l, not both")
			}
			return a.get(cmd, args, o)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	cmd.Flags().StringSliceVarP(&o.labels, "selector", "l", nil, "only those with these labels: key=value,...")
	cmd.Flags().BoolVar(&o.all, "all", false, "also deleted ones, while their history is kept")
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
	t := table{}
	noisy := false
	for _, sb := range found {
		noisy = noisy || trouble(sb) != ""
	}
	header := []string{"NAME", "ID", "STATE", "IMAGE", "EXECS", "AGE"}
	if noisy {
		header = append(header, "STATUS")
	}
	t.add(header...)
	for _, sb := range found {
		t.add(sandboxRow(sb, wide, noisy)...)
	}
	if colours(a.Out) {
		t.paint = paintState
	}
	t.print(a.Out)
}

func sandboxRow(sb *agboxv1.SandboxHandle, wide, noisy bool) []string {
	name := sb.GetName()
	if name == "" {
		name = "-"
	}
	row := []string{
		name, sb.GetSandboxId(), client.StateName(sb.GetState()), sb.GetImage(),
		strconv.Itoa(int(sb.GetActiveExecs())), age(sb.GetCreatedAt().AsTime(), time.Now()),
	}
	if noisy {
		row = append(row, oneLine(trouble(sb)))
	}
	if wide {
		return row
	}
	row[0], row[3] = clip(row[0], nameWidth), clip(row[3], imageWidth)
	if id := row[1]; len(id) > idWidth {
		row[1] = id[:idWidth]
	}
	if noisy {
		row[6] = clip(row[6], statusWidth)
	}
	return row
}

// trouble is what keeps a sandbox from being at rest, or "".
func trouble(sb *agboxv1.SandboxHandle) string {
	switch {
	case sb.GetErrorCode() != "":
		return sb.GetErrorCode() + ": " + sb.GetErrorMessage()
	case sb.GetStatusMessage() != "":
		return sb.GetStatusMessage()
	case sb.GetDesiredState() == "stopped":
		return "stopping"
	}
	return ""
}

func paintState(row, column int, cell string) string {
	if row == 0 || column != 2 {
		return cell
	}
	colour := "33" // yellow: on its way
	switch strings.TrimSpace(cell) {
	case "READY":
		colour = "32"
	case "FAILED":
		colour = "31"
	case "STOPPED", "DELETED":
		colour = "2"
	}
	return "\x1b[" + colour + "m" + cell + "\x1b[0m"
}
