package audit

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// severity is the weight of a finding when it is first observed.
type severity int

const (
	// hard: a correct daemon never shows it.
	hard severity = iota
	// flux: the daemon may still repair it.
	flux
	// note: it is of interest and violates no invariant.
	note
)

// Finding is one deviation from an invariant.
type Finding struct {
	// Invariant is its number, such as "I4"; docs/crash-contract.md lists them.
	Invariant string `json:"invariant"`
	// Object is the object of the finding, such as "sandbox web-1".
	Object string `json:"object"`
	// Problem is one sentence without secrets.
	Problem string `json:"problem"`

	severity severity
	key      string // identifies the difference across rounds
	stamp    string // of the object: it changes when the daemon has changed the object
}

func (f Finding) String() string { return f.Invariant + " " + f.Object + ": " + f.Problem }

// Report is the verdict of an audit.
type Report struct {
	Violations []Finding `json:"violations"`
	// Warnings are differences that the daemon may still repair, and findings that violate no invariant.
	Warnings []Finding `json:"warnings"`
	// Counts are the numbers of checked objects, by kind. A clean report about no objects proves nothing.
	Counts map[string]int `json:"counts"`
}

// OK reports whether nothing was violated.
func (r Report) OK() bool { return len(r.Violations) == 0 }

// Write prints the report for the user.
func (r Report) Write(w io.Writer) {
	for _, f := range r.Violations {
		fmt.Fprintln(w, "VIOLATION "+f.String())
	}
	for _, f := range r.Warnings {
		fmt.Fprintln(w, "warning   "+f.String())
	}
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		if n := r.Counts[name]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, name))
		}
	}
	fmt.Fprintln(w, "checked "+strings.Join(counts, ", "))
	fmt.Fprintf(w, "%d violations, %d warnings\n", len(r.Violations), len(r.Warnings))
}

// findings collects the findings of one round.
type findings struct{ list []Finding }

// report adds a finding. Two findings of one invariant, object and format are the same difference.
func (s *findings) report(sev severity, invariant, object, stamp, format string, args ...any) {
	s.list = append(s.list, Finding{
		Invariant: invariant, Object: object, Problem: fmt.Sprintf(format, args...),
		severity: sev, key: invariant + "\x00" + object + "\x00" + format, stamp: stamp,
	})
}

// saying reports differences of one object from one invariant.
type saying func(format string, args ...any)

func (s *findings) about(sev severity, invariant, object, stamp string) saying {
	return func(format string, args ...any) { s.report(sev, invariant, object, stamp, format, args...) }
}

// when reports a difference if it is there.
func (say saying) when(differs bool, format string, args ...any) {
	if differs {
		say(format, args...)
	}
}
