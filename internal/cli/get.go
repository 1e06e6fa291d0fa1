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
		Long: `List sandboxes, newest first. "-o yaml" prints manifests that can be applied again. With -w, go on and print a sandbox
again whenever something about it changes, until ^C, or until all that were named are deleted.`,
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

// rowStyle is a choice of columns. NAME, ID and STATE come first in all of them.
type rowStyle int

const (
	quiet rowStyle = iota // every sandbox is at rest
	noisy                 // what keeps them from it takes the place of the image
	full                  // -o wide
)

func (s rowStyle) header() []string {
	switch s {
	case noisy:
		return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "STATUS"}
	case full:
		return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "RESTARTS", "IMAGE", "PORTS", "STATUS"}
	}
	return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "IMAGE"}
}

// ageColumn changes without anything having happened.
const ageColumn = 4

func (s rowStyle) row(sb *agboxv1.SandboxHandle) []string {
	name, id := dash(sb.GetName()), sb.GetSandboxId()
	if s != full {
		name, id = clip(name, nameWidth), id[:min(len(id), idWidth)]
	}
	row := []string{name, id, client.StateName(sb.GetState()), strconv.Itoa(int(sb.GetActiveExecs())), age(sb.GetCreatedAt().AsTime(), time.Now())}
	switch s {
	case quiet:
		return append(row, clip(sb.GetImage(), imageWidth))
	case noisy:
		if sb.GetErrorMessage() != "" {
			return append(row, oneLine(sb.GetErrorMessage())) // the code alone would fill the line
		}
		return append(row, oneLine(trouble(sb)))
	}
	return append(row, strconv.Itoa(int(sb.GetRestarts())), sb.GetImage(), dash(portList(sb.GetPorts(), ",")), oneLine(trouble(sb)))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// portList is "127.0.0.1:49153->8080/tcp", with the service's name in front of a service's ports.
func portList(ports []*agboxv1.PublishedPort, separator string) string {
	var all []string
	for _, p := range ports {
		text := fmt.Sprintf("127.0.0.1:%d->%d/%s", p.GetHostPort(), p.GetContainerPort(), p.GetProtocol())
		if p.GetServiceName() != "" {
			text = p.GetServiceName() + "=" + text
		}
		all = append(all, text)
	}
	return strings.Join(all, separator)
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
	return failedServices(sb)
}

func failedServices(sb *agboxv1.SandboxHandle) string {
	var names []string
	for _, s := range sb.GetServices() {
		if s.GetState() == serviceFailed && sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY {
			names = append(names, s.GetName())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "service failed: " + strings.Join(names, ", ")
}

// serviceFailed is ServiceStatus.state of one whose last event was a failure.
const serviceFailed = "FAILED"

// paintState colours the third column by its word; the header is none.
func paintState(column int, cell string) string {
	colour := "33" // yellow: on its way
	switch word := strings.TrimSpace(cell); {
	case column != 2, word == "STATE":
		return cell
	case word == "READY":
		colour = "32"
	case word == "FAILED":
		colour = "31"
	case word == "STOPPED", word == "DELETED":
		colour = "2"
	}
	return "\x1b[" + colour + "m" + cell + "\x1b[0m"
}
