package cli

import (
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestChecksFitATerminal(t *testing.T) {
	master, terminal := openTerminal(t, 40)
	raw(t, terminal)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	a := &app{Streams: Streams{Out: terminal}}
	a.printChecks([]*agboxv1.DoctorCheck{
		{Name: "engine", Status: "ok"},
		{Name: "disk_limit", Status: "warning", Text: "Specs with it are refused, as long as this is so.\x1b[2J"},
	})
	want := strings.Join([]string{
		"CHECK       STATUS   TEXT",
		"engine      \x1b[32mok       \x1b[0m",
		"disk_limit  \x1b[33mwarning  \x1b[0mSpecs with it are",
		"                     refused, as long as",
		"                     this is so.^[[2J",
		"",
	}, "\n")
	if got := readSome(t, master); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                  {""},
		"one":               {"one"},
		"a bc def":          {"a bc", "def"},
		"ab cde":            {"ab", "cde"},
		"a longerword b":    {"a", "longerword", "b"},
		"ä ö ü ß and so on": {"ä ö ü", "ß and", "so on"},
	} {
		if got := wrap(text, 5); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := wrap("a  b c d e f", 0); !slices.Equal(got, []string{"a  b c d e f"}) {
		t.Errorf("without a width: %q", got)
	}
}
