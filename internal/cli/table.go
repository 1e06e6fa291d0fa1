package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agbox/agbox/internal/termsafe"
)

// table prints columns as wide as their cells, two spaces apart.
type table struct {
	rows [][]string
	// states is the column whose states are coloured; 0: no colours.
	states int
	// limit is the width of a line: the last cell is cut to fit, but not below minLast. 0: no limit.
	limit  int
	widths map[int]int
}

const minLast = 16

func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = termsafe.Line(cell)
	}
	t.rows = append(t.rows, row)
}

// write writes the rows that were added since the last write. Columns never get narrower.
func (t *table) write(w io.Writer) {
	w = termsafe.Unfiltered(w) // the colours are ours
	if t.widths == nil {
		t.widths = map[int]int{}
	}
	for _, row := range t.rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		fmt.Fprintln(w, t.line(row))
	}
	t.rows = nil
}

func (t *table) line(row []string) string {
	var line strings.Builder
	used := 0
	for i, cell := range row {
		last := i == len(row)-1
		switch {
		case !last:
			cell += strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+2)
			used += t.widths[i] + 2
		case t.limit > 0:
			cell = clip(cell, max(t.limit-used, minLast))
		}
		if colour := stateColours[strings.TrimSuffix(strings.TrimSpace(cell), "?")]; colour != "" && i == t.states && i > 0 {
			cell = "\x1b[" + colour + "m" + cell + "\x1b[0m"
		}
		line.WriteString(cell)
	}
	return strings.TrimRight(line.String(), " ")
}

// newTable returns a table that cuts its lines to the width of a terminal, or to tableWidth elsewhere, unless it is wide.
func newTable(w io.Writer, wide bool) *table {
	if wide {
		return &table{}
	}
	return &table{limit: cmp.Or(terminalWidth(w), tableWidth)}
}

// stateColours are the colours of states of sandboxes and agents, and of checks; a "?" may follow the state of an agent.
var stateColours = map[string]string{
	"READY": "32", "IDLE": "32", "BUSY": "32", "FAILED": "31", "STOPPED": "2", "PAUSED": "2", "DELETED": "2",
	"PENDING": "33", "STARTING": "33", "DELETING": "33",
	"ok": "32", "warning": "33", "problem": "31",
}

// paintStates colours the states in a column if w is a terminal for colours.
func (t *table) paintStates(w io.Writer, states int) {
	if colours(w) {
		t.states = states
	}
}

// clip shortens s to n characters, the last one "…".
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// age is kubectl's: "45s", "12m", "5h", "3d".
func age(since time.Time, now time.Time) string {
	d := max(now.Sub(since), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
