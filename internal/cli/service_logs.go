package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/internal/cli/termsafe"
	"github.com/agbox/agbox/internal/servicelog"
	"github.com/agbox/agbox/internal/wait"
)

// serviceLogOptions are the flags of logs that are for services only: only their output is stored with its times.
type serviceLogOptions struct {
	name       string
	tail       int
	since      string
	timestamps bool
	from       time.Time
}

func (o *serviceLogOptions) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "service", "", "the output of this service of the sandbox")
	cmd.Flags().IntVar(&o.tail, "tail", -1, "only the last lines of a service, this many; -1 for all")
	cmd.Flags().StringVar(&o.since, "since", "", "only the output of a service since a time (RFC 3339), or of the last while (such as 10m)")
	cmd.Flags().BoolVar(&o.timestamps, "timestamps", false, "begin each line of a service with its time")
}

// parse checks the flags.
func (o *serviceLogOptions) parse(cmd *cobra.Command) error {
	if o.name == "" {
		if o.tail >= 0 || o.since != "" || o.timestamps {
			return usagef(cmd, "--tail, --since and --timestamps need --service: only the output of services is stored with its times")
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

// lookAgainAtService is the pause between two copies of the output of a service that is followed. Each is a call of the engine.
const lookAgainAtService = time.Second

// serviceLogs shows the output of a service; with -f until the sandbox no longer runs.
func (a *app) serviceLogs(ctx context.Context, ref string, o logsOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	end := ended()
	if o.follow && mayRun(sb.GetState()) {
		end = a.awaitRest(ctx, sb)
	}
	filters := screens{raw: o.raw, mode: termsafe.Plain}
	p := recordPrinter{logsOptions: o, out: filters.before(a.Out), errOut: filters.before(a.Err)}
	var seen []servicelog.Record
	for first := true; ; first = false {
		last := end.over()
		path, problem, err := a.conn().ServiceLog(ctx, sb.GetSandboxId(), o.service.name)
		if err != nil {
			if last && !first { // followed to the end, which was a delete
				err = nil
			}
			return errors.Join(err, filters.close())
		}
		if problem != "" {
			a.notes.say(problem + "; the newest output of service " + o.service.name + " may be missing")
		}
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, filters.close())
		}
		all := servicelog.Parse(data)
		fresh := servicelog.After(seen, all, sameRecord)
		if first {
			fresh = o.service.chosen(fresh)
		}
		if err := p.print(fresh); err != nil {
			return errors.Join(err, filters.close())
		}
		if seen = all; last {
			return errors.Join(end.err, filters.close())
		}
		if err := wait.For(ctx, lookAgainAtService); err != nil {
			return errors.Join(err, filters.close())
		}
	}
}

// over reports whether the writer has ended.
func (e *execEnd) over() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func sameRecord(a, b servicelog.Record) bool {
	return a.Time.Equal(b.Time) && a.Stderr == b.Stderr && bytes.Equal(a.Text, b.Text)
}

// chosen returns the records that --since and --tail select.
func (o serviceLogOptions) chosen(records []servicelog.Record) []servicelog.Record {
	first := 0
	for first < len(records) && records[first].Time.Before(o.from) {
		first++
	}
	records = records[first:]
	if o.tail < 0 {
		return records
	}
	lines, i := 0, len(records)
	for ; i > 0; i-- {
		if bytes.HasSuffix(records[i-1].Text, []byte("\n")) || i == len(records) {
			if lines++; lines > o.tail {
				break
			}
		}
	}
	return records[i:]
}

// recordPrinter prints records to the stream that they came from.
type recordPrinter struct {
	logsOptions
	out, errOut io.Writer
	within      [2]bool // the last record of stdout and of stderr was a part of a line
}

func (p *recordPrinter) print(records []servicelog.Record) error {
	for _, r := range records {
		w, i := p.out, 0
		if r.Stderr {
			w, i = p.errOut, 1
		}
		if r.Stderr && p.stdout || !r.Stderr && p.stderr {
			continue
		}
		text := r.Text
		if p.service.timestamps && !p.within[i] {
			text = fmt.Appendf(nil, "%s %s", r.Time.Format(time.RFC3339Nano), text)
		}
		p.within[i] = !bytes.HasSuffix(r.Text, []byte("\n"))
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}
