// Command bench measures agbox and the bare Docker API in the same run, on the same engine: machines vary, so only the ratio is meaningful.
// It compares these ratios and the cost of agents with promised bounds and returns an error if one is exceeded. Build first (make bench does).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"
)

const image = "agbox-base:dev"

func main() {
	rounds := flag.Int("rounds", 15, "measurements of each kind")
	many := flag.Int("sandboxes", 40, "sandboxes at the restart")
	only := flag.String("only", "", "measure only this part: lifecycle, execs, inside (streams, files and ports), sdk (E2B's SDK) or agents")
	serve := flag.Bool(echoFlag, false, "be the server in the measurements of ports")
	bin := flag.String("bin", "bin", "directory of the built programs")
	other := flag.String("against", "", "directory with the programs of another version: compare with it in place of the bare engine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case *serve:
		err = echoServer()
	case *other != "":
		err = versions(ctx, *bin, *other, *rounds)
	default:
		err = run(ctx, *bin, *rounds, *many, *only)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// row is one line of the result.
type row struct {
	what        string
	most        float64         // the promised bound of the ratio to the bare engine; 0: none
	below       time.Duration   // the promised bound of the median; 0: none
	agbox, bare []time.Duration // bare: times of the other side, Docker or another version
}

// The promised ratios of create, exec and stop. docs/benchmarks.md says where each comes from.
const (
	mostCreate = 1.3
	mostExec   = 0.5
	mostStop   = 1.75
)

func run(ctx context.Context, bin string, rounds, many int, only string) error {
	d, err := newDaemon(ctx, bin, gateway)
	if err != nil {
		return err
	}
	defer d.end()
	b, err := newBare(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	var slower error // the other parts are measured all the same
	for _, part := range []struct {
		name    string
		measure func() ([]row, error)
	}{
		{"lifecycle", func() ([]row, error) { return compare(ctx, d, b, rounds, many) }},
		{"execs", func() ([]row, error) { return measureExecs(ctx, d, b) }},
		{"inside", func() ([]row, error) { return measureInside(ctx, d, b, rounds) }},
		{"sdk", func() ([]row, error) { return measureSDK(ctx, d, b, rounds) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		rows, err := part.measure()
		if err != nil {
			return err
		}
		if len(rows) > 0 { // otherwise it was left out
			report("agbox", "bare Docker", rows)
		}
		slower = errors.Join(slower, broken(rows))
	}
	if only != "" && only != "agents" {
		return slower
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	err = measureAgents(ctx, d, rounds, w)
	return errors.Join(slower, err, w.Flush())
}

// compare measures the lifecycle and restarts.
func compare(ctx context.Context, d *daemon, b *bare, rounds, many int) ([]row, error) {
	life, err := lifecycle(ctx, d, b, rounds, 1)
	if err != nil {
		return nil, err
	}
	again, err := restarts(ctx, d, b, rounds, many)
	return append(life, again...), err
}

// execsOfVersions is the number of execs per round in a comparison of versions: single execs vary by half.
const execsOfVersions = 20

// versions compares the agboxd programs in two directories.
func versions(ctx context.Context, bin, other string, rounds int) error {
	d, err := newDaemon(ctx, bin, "")
	if err != nil {
		return err
	}
	defer d.end()
	o, err := newDaemon(ctx, other, "")
	if err != nil {
		return err
	}
	defer o.end()
	rows, err := lifecycle(ctx, d, o, rounds, execsOfVersions)
	if err != nil {
		return err
	}
	report(bin, other, rows)
	return nil
}

// lifecycle measures both sides alternately, so that noise affects both equally.
func lifecycle(ctx context.Context, a, b side, rounds, execs int) ([]row, error) {
	rows := []row{
		{what: "create to READY", most: mostCreate}, {what: "exec true, round trip", most: mostExec},
		{what: "pause"}, {what: "resume from a pause"}, {what: "stop", most: mostStop},
	}
	for i := range rounds {
		progress("round %d of %d", i+1, rounds)
		id := fmt.Sprintf("bench-%d-%d", os.Getpid(), i)
		sides := []side{a, b}
		if i%2 == 1 {
			sides = []side{b, a} // the remains of one side slow down the other
		}
		for _, s := range sides {
			for j, op := range []operation{{s.create, 1}, {s.exec, execs}, {s.pause, 1}, {s.resume, 1}, {s.stop, 1}} {
				times, err := op.measure(ctx, id)
				if err != nil {
					return nil, fmt.Errorf("%s of %T: %w", rows[j].what, s, err)
				}
				rows[j].add(s == a, times)
			}
			if err := s.remove(ctx, id); err != nil {
				return nil, err
			}
		}
	}
	progressEnds()
	return rows, nil
}

type operation struct {
	do    func(ctx context.Context, id string) error
	times int
}

func (op operation) measure(ctx context.Context, id string) ([]time.Duration, error) {
	var all []time.Duration
	for range op.times {
		start := time.Now()
		if err := op.do(ctx, id); err != nil {
			return nil, err
		}
		all = append(all, time.Since(start))
	}
	return all, nil
}

// side is one of the two compared sides.
type side interface {
	create(ctx context.Context, id string) error
	exec(ctx context.Context, id string) error
	pause(ctx context.Context, id string) error
	resume(ctx context.Context, id string) error
	stop(ctx context.Context, id string) error
	remove(ctx context.Context, id string) error
}

// restarts measures the time from kill -9 until all sandboxes are observed as wanted, also with the database lost, and compares it with one
// list and an inspect of each container.
func restarts(ctx context.Context, d *daemon, b *bare, rounds, many int) ([]row, error) {
	rows := []row{{what: fmt.Sprintf("restart with %d sandboxes", many)}, {what: "the same without the database"}}
	ids := make([]string, many)
	for i := range ids {
		ids[i] = fmt.Sprintf("bench-%d-many-%d", os.Getpid(), i)
		progress("sandbox %d of %d", i+1, many)
		if err := d.create(ctx, ids[i]); err != nil {
			return nil, err
		}
	}
	progressEnds()
	for range max(3, rounds/3) {
		for i := range rows {
			took, err := d.restart(ctx, i == 1, func(ctx context.Context) error { return d.allReady(ctx, many) })
			if err != nil {
				return nil, err
			}
			begin := time.Now()
			if err := b.look(ctx); err != nil {
				return nil, err
			}
			rows[i].agbox, rows[i].bare = append(rows[i].agbox, took), append(rows[i].bare, time.Since(begin))
		}
	}
	for _, id := range ids {
		if err := d.remove(ctx, id); err != nil {
			return nil, err
		}
	}
	return rows, nil
}
