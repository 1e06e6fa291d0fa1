package recovery

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// WriteText writes the plan for the user: one line per sandbox, then the skipped objects, then the former instances.
func (o Output) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tNAME\tSOURCE\tSTATE\tEXECS\tDEFAULTED")
	for _, s := range o.Sandboxes {
		state := enum.Word(agboxv1.SandboxState(s.Record.GetState()))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", s.Record.GetSandboxId(), orDash(s.Record.GetDesired().GetName()), s.Source, state,
			len(s.Execs), orDash(strings.Join(s.Defaulted, ",")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range o.Skipped {
		if _, err := fmt.Fprintf(out, "skipped: %s %s of sandbox %s: %s\n", s.Kind, orDash(cmp.Or(s.Name, s.ID)), quoted(s.SandboxID), s.Reason); err != nil {
			return err
		}
	}
	for _, uuid := range o.Former {
		if _, err := fmt.Fprintf(out, "former instance: %s\n", quoted(uuid)); err != nil {
			return err
		}
	}
	return nil
}

// quoted quotes the content of a foreign label, unless it is plain.
func quoted(s string) string {
	if q := fmt.Sprintf("%q", s); q != `"`+s+`"` || s == "" || strings.Contains(s, " ") {
		return q
	}
	return s
}

func orDash(s string) string { return cmp.Or(s, "-") }
