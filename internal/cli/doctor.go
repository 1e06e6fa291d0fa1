package cli

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", SuggestFor: []string{"check", "status", "info", "health"}, Short: "Show what daemon, engine and kernel are, and cannot enforce", Args: noArgs,
		Long: `Show what the daemon, the Docker engine behind it and its kernel are, and what they cannot enforce: one line for each check, with what
follows for sandboxes and what to do about it. The first ones are those of /readyz.

  ok       nothing to do
  warning  a limit is not enforced, or something is weaker than it can be
  problem  the daemon cannot do its work

Exit code 1: there is a problem.`,
		Example: "  agbox doctor\n  agbox doctor -o json | jq -r 'select(.status != \"ok\") | .text'",
	}
	output := outputFlag(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), output) }
	return cmd
}

func (a *app) doctor(ctx context.Context, o *output) error {
	checks, err := a.conn().Doctor(ctx)
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, c := range checks {
		count[c.GetStatus()]++
	}
	if o.given() {
		err = printLines(a.Out, checks)
	} else {
		a.printChecks(checks)
		a.hint(plural(count["problem"], "problem") + ", " + plural(count["warning"], "warning"))
	}
	return errors.Join(err, outcomeOf(ctx, count["problem"] > 0))
}

// printChecks prints a table. On a terminal it wraps the texts: cut ones would not say what to do. Elsewhere each check is one line.
func (a *app) printChecks(checks []*agboxv1.DoctorCheck) {
	t := &table{}
	t.paintStates(a.Out, 1)
	t.add("CHECK", "STATUS", "TEXT")
	names, statuses := len("CHECK"), len("STATUS")
	for _, c := range checks {
		names, statuses = max(names, utf8.RuneCountInString(oneLine(c.GetName()))), max(statuses, len(c.GetStatus()))
	}
	width := 0
	if terminal := terminalWidth(a.Out); terminal > 0 {
		width = max(terminal-names-statuses-4, minLast)
	}
	for _, c := range checks {
		name, status := oneLine(c.GetName()), oneLine(c.GetStatus())
		for _, line := range wrap(oneLine(c.GetText()), width) {
			t.add(name, status, line)
			name, status = "", ""
		}
	}
	t.write(a.Out)
}

// wrap splits text between words into lines of at most width characters, or of one longer word. 0: one line.
func wrap(text string, width int) []string {
	if width == 0 {
		return []string{text}
	}
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
