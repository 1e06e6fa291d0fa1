package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// below returns an error unless got is below the promised time.
func below(what string, got, promised time.Duration) error {
	if got < promised {
		return nil
	}
	return fmt.Errorf("promise broken: %s: %s, and less than %s is promised", what, got.Round(time.Microsecond), promised)
}

// broken returns an error for each row whose ratio of medians is above its promised bound, or whose median is not below it.
func broken(rows []row) error {
	var broken []error
	for _, r := range rows {
		if r.most > 0 && r.ratio() > r.most {
			broken = append(broken, fmt.Errorf("promise broken: %s: %.2f times the bare engine's %s, and at most %.2f times is promised; "+
				"if the machine was busy, run it again when it is idle", r.what, r.ratio(), at(r.bare, 50), r.most))
		}
		if r.below > 0 {
			broken = append(broken, below(r.what, at(r.agbox, 50), r.below))
		}
	}
	return errors.Join(broken...)
}

// ratio compares medians: one slow measurement on either side does not move it.
func (r row) ratio() float64 { return float64(at(r.agbox, 50)) / float64(at(r.bare, 50)) }

// shown reports whether stderr is a terminal: progress is not written to log files.
var shown = term.IsTerminal(int(os.Stderr.Fd()))

func progress(format string, args ...any) {
	if shown {
		fmt.Fprintf(os.Stderr, "\r"+format, args...)
	}
}

func progressEnds() {
	if shown {
		fmt.Fprintln(os.Stderr)
	}
}

// report prints the medians of both sides and their ratio.
func report(ours, other string, rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t%s median\tp90\t%s median\tp90\tratio\tat most\n", ours, other)
	for _, r := range rows {
		most := "-"
		if r.most > 0 {
			most = fmt.Sprintf("%.2f", r.most)
		}
		if r.below > 0 {
			most = fmt.Sprintf("below %s", r.below.Round(time.Millisecond))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.2f\t%s\n", r.what, at(r.agbox, 50), at(r.agbox, 90), at(r.bare, 50), at(r.bare, 90), r.ratio(), most)
	}
	_ = w.Flush() // to stdout
}

func at(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(10 * time.Microsecond)
}
