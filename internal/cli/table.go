package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// table prints columns as wide as their cells, two spaces apart.
type table struct {
	rows [][]string
	// paint colours a padded cell; nil: no colours. It must not change the width that shows.
	paint func(row, column int, cell string) string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	widths := map[int]int{}
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for r, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			padded := cell
			if i < len(row)-1 {
				padded += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			}
			if t.paint != nil {
				padded = t.paint(r, i, padded)
			}
			line.WriteString(padded)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// clip shortens s to n characters, the last one "…".
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// oneLine makes text of any origin safe for a line of a table: no line ends and no terminal control characters.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
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
