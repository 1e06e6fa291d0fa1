package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain NAME", SuggestFor: []string{"why"}, Short: "Say what the daemon does about a sandbox, or why it waits", ValidArgsFunction: a.completeName,
		Long: `Say what is wanted of a sandbox, what was found, what differs, what the daemon does next, and why it waits if it does. It looks
at the engine and changes nothing. Deleted sandboxes are explained too, by their ID.`,
		Example: "  agbox explain web",
		Args:    one("the name or ID of a sandbox"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.explainOne(cmd.Context(), args[0]) },
	}
}

func (a *app) explainOne(ctx context.Context, ref string) error {
	sb, err := a.resolve(ctx, ref)
	var missing *notFoundError
	if errors.As(err, &missing) {
		sb, err = &agboxv1.SandboxHandle{SandboxId: ref}, nil // its history may be purged, or only the engine knows it
	}
	if err != nil {
		return err
	}
	e, err := a.conn.Explain(ctx, sb.GetSandboxId())
	if missing != nil && (client.IsNotFound(err) || client.IsInvalidArgument(err)) {
		return missing
	}
	if err != nil {
		return err
	}
	a.showExplained(sb, e, time.Now())
	return nil
}

func (a *app) showExplained(sb *agboxv1.SandboxHandle, e *agboxv1.ExplainResponse, now time.Time) {
	a.fact("Name", sb.GetName())
	a.fact("ID", oneLine(sb.GetSandboxId()))
	a.fact("Wanted", e.GetDesired())
	state := ""
	if e.GetState() != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
		state = client.StateName(e.GetState())
	}
	a.fact("State", state)
	if e.GetEngineProblem() != "" {
		a.fact("Engine", oneLine(e.GetEngineProblem()))
		a.fact("Since", when(e.GetEngineProblemSince()))
	}
	if e.GetWaiting() != "" && e.GetWaiting() != e.GetEngineProblem() {
		a.fact("Waiting", oneLine(e.GetWaiting()))
	}
	if e.GetLastError() != "" {
		a.fact("Last error", oneLine(e.GetLastError()))
		a.fact("Tries", triesText(e, now))
	}
	a.list("Observed", e.GetObserved(), false)
	a.list("Differences", e.GetDifferences(), false)
	a.list("Next", e.GetNextSteps(), true)
	a.showDeadlines(e.GetDeadlines(), now)
}

// triesText is "7 in a row, the next at 2026-12-01T11:00:00+01:00 (in 12s)".
func triesText(e *agboxv1.ExplainResponse, now time.Time) string {
	text := fmt.Sprintf("%d in a row", e.GetTries())
	if e.GetRetryAt() == nil {
		return text
	}
	at := e.GetRetryAt().AsTime()
	return fmt.Sprintf("%s, the next at %s (%s)", text, at.Local().Format(time.RFC3339), ahead(at, now))
}

func (a *app) list(title string, lines []string, numbered bool) {
	if len(lines) == 0 {
		a.fact(title, "none")
		return
	}
	fmt.Fprintln(a.Out, title+":")
	for i, line := range lines {
		if numbered {
			line = fmt.Sprintf("%d. %s", i+1, line)
		}
		fmt.Fprintln(a.Out, "  "+oneLine(line))
	}
}

func (a *app) showDeadlines(list []*agboxv1.ExplainDeadline, now time.Time) {
	if len(list) == 0 {
		a.fact("Deadlines", "none")
		return
	}
	fmt.Fprintln(a.Out, "Deadlines:")
	t := &table{}
	for _, d := range list {
		at := d.GetAt().AsTime()
		t.add("  "+d.GetKind(), d.GetAction(), at.Local().Format(time.RFC3339), ahead(at, now))
	}
	t.write(a.Out)
}
