package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/internal/termsafe"
)

// lineOptions are the flags that select lines of a main process or of a service, whose output is stored with its times.
type lineOptions struct {
	service    string
	tail       int
	since      string
	timestamps bool
	from       time.Time
}

func (o *lineOptions) bind(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.service, "service", "c", "", "the output of this service of the sandbox")
	cmd.Flags().IntVarP(&o.tail, "tail", "n", -1, "of a service: only the last lines, this many; of a main process: of each stream; -1 for all")
	cmd.Flags().StringVar(&o.since, "since", "", "of a main process or a service: only the output since a time (RFC 3339), or of the last while (such as 10m)")
	cmd.Flags().BoolVarP(&o.timestamps, "timestamps", "t", false, "of a main process or a service: begin each line with the time at which it was read")
}

// given reports whether any of the flags was given.
func (o *lineOptions) given() bool { return o.tail >= 0 || o.since != "" || o.timestamps }

// parse checks the flags.
func (o *lineOptions) parse(cmd *cobra.Command) (err error) {
	if o.tail < -1 {
		return usagef(cmd, "--tail %d: expected a number of lines, or -1 for all", o.tail)
	}
	if o.since == "" {
		return nil
	}
	if o.from, err = sinceTime(o.since, time.Now()); err != nil {
		return usagef(cmd, "--since %s: expected a duration such as 10m, or a time such as 2026-12-01T10:00:00Z", o.since)
	}
	return nil
}

// sinceTime returns the time that a value of --since means, in the forms that docker knows; times without a zone are local.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 1e9 {
		return time.UnixMicro(int64(seconds * 1e6)), nil
	}
	if d, err := quantity.Duration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	var at time.Time
	var err error
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly} {
		if at, err = time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return at, err
}

// sandboxLogs shows the output of a sandbox's main process, or of a service; with -f until the sandbox no longer runs.
func (a *app) sandboxLogs(ctx context.Context, id string, o logsOptions) error {
	req := &agboxv1.StreamLogsRequest{SandboxId: id, ServiceName: o.lines.service, Follow: o.follow}
	if o.lines.timestamps || !o.lines.from.IsZero() {
		req.Since = &timestamppb.Timestamp{}
	}
	if !o.lines.from.IsZero() {
		req.Since = timestamppb.New(o.lines.from)
	}
	if o.lines.tail >= 0 {
		lines := uint32(o.lines.tail)
		req.TailLines = &lines
	}
	filters := screens{raw: o.raw, mode: termsafe.Plain}
	out, errOut := o.chosen(filters.before(a.Out), filters.before(a.Err))
	p := linePrinter{timestamps: o.lines.timestamps, to: [2]io.Writer{out, errOut}}
	for chunk, err := range a.conn().Logs(ctx, req) {
		switch {
		case err != nil:
			return errors.Join(err, filters.close())
		case chunk.GetProblem() != "" && o.lines.service == "":
			a.notes.say(chunk.GetProblem())
		case chunk.GetProblem() != "":
			a.notes.say(chunk.GetProblem() + "; the newest output of service " + o.lines.service + " may be missing")
		default:
			if err := p.print(chunk); err != nil {
				return errors.Join(fmt.Errorf("print the logs: %w", err), filters.close())
			}
		}
	}
	return filters.close()
}

// linePrinter prints output to the stream that it came from.
type linePrinter struct {
	timestamps bool
	to         [2]io.Writer // of stdout and of stderr; nil: left out
	within     [2]bool      // what was printed last ends within a line
}

// noTime stands for an unknown time.
const noTime = "-"

func (p *linePrinter) print(c *agboxv1.LogChunk) error {
	i := 0
	if c.GetStream() == agboxv1.OutputStream_OUTPUT_STREAM_STDERR {
		i = 1
	}
	if p.to[i] == nil {
		return nil
	}
	text := c.GetData()
	if p.timestamps {
		text = p.dated(text, c.GetTime(), &p.within[i])
	}
	_, err := p.to[i].Write(text)
	return err
}

// dated begins each line of text with its time. within says whether text begins within a line, and then whether it ends so.
func (p *linePrinter) dated(text []byte, at *timestamppb.Timestamp, within *bool) (dated []byte) {
	prefix := noTime
	if at != nil {
		prefix = at.AsTime().Format(time.RFC3339Nano)
	}
	for line := range bytes.Lines(text) {
		if !*within {
			dated = append(append(dated, prefix...), ' ')
		}
		dated = append(dated, line...)
		*within = !bytes.HasSuffix(line, []byte("\n"))
	}
	return dated
}
