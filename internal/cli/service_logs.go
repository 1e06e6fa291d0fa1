package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/internal/cli/termsafe"
)

// serviceLogOptions are the flags of logs that are for services only: only their output is stored with its times.
type serviceLogOptions struct {
	name       string
	since      string
	timestamps bool
	from       time.Time
}

func (o *serviceLogOptions) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "service", "", "the output of this service of the sandbox")
	cmd.Flags().StringVar(&o.since, "since", "", "only the output of a service since a time (RFC 3339), or of the last while (such as 10m)")
	cmd.Flags().BoolVar(&o.timestamps, "timestamps", false, "begin each line of a service with its time")
}

// parse checks the flags.
func (o *serviceLogOptions) parse(cmd *cobra.Command) error {
	if o.name == "" {
		if o.since != "" || o.timestamps {
			return usagef(cmd, "--since and --timestamps need --service: only the output of services is stored with its times")
		}
		return nil
	}
	if o.since == "" {
		return nil
	}
	if d, err := quantity.Duration(o.since); err == nil && d >= 0 {
		o.from = time.Now().Add(-d)
		return nil
	}
	at, err := time.Parse(time.RFC3339, o.since)
	if err != nil {
		return usagef(cmd, "--since %s: expected a duration such as 10m, or a time such as 2026-12-01T10:00:00Z", o.since)
	}
	o.from = at
	return nil
}

// serviceLogs shows the output of a service; with -f until the sandbox no longer runs.
func (a *app) serviceLogs(ctx context.Context, ref string, o logsOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	req := &agboxv1.StreamLogsRequest{SandboxId: sb.GetSandboxId(), ServiceName: o.service.name, Follow: o.follow}
	if !o.service.from.IsZero() {
		req.Since = timestamppb.New(o.service.from)
	}
	if o.tail >= 0 {
		lines := uint32(o.tail)
		req.TailLines = &lines
	}
	filters := screens{raw: o.raw, mode: termsafe.Plain}
	p := recordPrinter{logsOptions: o, out: filters.before(a.Out), errOut: filters.before(a.Err)}
	for chunk, err := range a.conn().Logs(ctx, req) {
		switch {
		case err != nil:
			return errors.Join(err, filters.close())
		case chunk.GetProblem() != "":
			a.notes.say(chunk.GetProblem() + "; the newest output of service " + o.service.name + " may be missing")
		default:
			if err := p.print(chunk); err != nil {
				return errors.Join(err, filters.close())
			}
		}
	}
	return filters.close()
}

// recordPrinter prints records to the stream that they came from.
type recordPrinter struct {
	logsOptions
	out, errOut io.Writer
	within      [2]bool // the last record of stdout and of stderr was a part of a line
}

func (p *recordPrinter) print(c *agboxv1.LogChunk) error {
	w, i, stderr := p.out, 0, c.GetStream() == agboxv1.OutputStream_OUTPUT_STREAM_STDERR
	if stderr {
		w, i = p.errOut, 1
	}
	if stderr && p.stdout || !stderr && p.stderr {
		return nil
	}
	text := c.GetData()
	if p.service.timestamps && !p.within[i] {
		text = fmt.Appendf(nil, "%s %s", c.GetTime().AsTime().Format(time.RFC3339Nano), text)
	}
	p.within[i] = !bytes.HasSuffix(c.GetData(), []byte("\n"))
	_, err := w.Write(text)
	return err
}
