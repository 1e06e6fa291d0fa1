package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain [agent] NAME", SuggestFor: []string{"why"}, Short: "Explain what the daemon does next for a sandbox or an agent, or why it waits",
		ValidArgsFunction: a.completeEither,
		Long: `Show the desired state of a sandbox, what the daemon observes in the engine, the differences, the next steps, and what it waits
for. Explain changes nothing. Name a deleted sandbox by its ID, and an agent by agent/NAME, "agent NAME", or its name alone if no
sandbox has it.`,
		Example: "  agbox explain web\n  agbox explain agent/coder",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 && kindOf(args[0]) != "" {
				return nil
			}
			return usagef(cmd, "expected the name or ID of a sandbox, or agent/NAME, got %s", arguments(len(args)))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, ref := addressed(args)
			return a.explain(cmd.Context(), kind, ref)
		},
	}
}

// Kinds, as users write them before a name.
const (
	kindAgent   = "agent"
	kindExec    = "exec"
	kindSandbox = "sandbox"
)

// kindOf returns the kind of a word, or "".
func kindOf(word string) string {
	switch word {
	case "agent", "agents":
		return kindAgent
	case "exec", "execs":
		return kindExec
	case "sandbox", "sandboxes":
		return kindSandbox
	}
	return ""
}

// addressed splits "agent/NAME", "agent NAME" or a bare name into kind and name. Names and IDs have no slash.
func addressed(args []string) (kind, ref string) {
	if len(args) == 2 {
		return kindOf(args[0]), args[1]
	}
	if word, name, ok := strings.Cut(args[0], "/"); ok && kindOf(word) != "" {
		return kindOf(word), name
	}
	return "", args[0]
}

// bare removes a kind before a name.
func bare(kind, ref string) string {
	if word, name, ok := strings.Cut(ref, "/"); ok && kindOf(word) == kind {
		return name
	}
	return ref
}

// explain explains the object of a kind, or without one the sandbox ref, or else the agent ref.
func (a *app) explain(ctx context.Context, kind, ref string) error {
	if kind == kindAgent {
		return a.explainAgent(ctx, ref)
	}
	err := a.explainSandbox(ctx, ref)
	if kind == "" && a.sandboxKind().isNotFound(err) {
		if agentErr := a.explainAgent(ctx, ref); !a.agentKind().isNotFound(agentErr) {
			return agentErr
		}
	}
	return err
}

func (a *app) explainSandbox(ctx context.Context, ref string) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	var missing *notFoundError
	if errors.As(err, &missing) {
		sb, err = &agboxv1.SandboxHandle{SandboxId: ref}, nil // its record may be purged, and its objects may still be in the engine
	}
	if err != nil {
		return err
	}
	e, err := a.conn().Explain(ctx, sb.GetSandboxId())
	if missing != nil && (client.IsNotFound(err) || client.IsInvalidArgument(err)) {
		return missing
	}
	if err != nil {
		return err
	}
	a.fact("Name", sb.GetName())
	a.fact("ID", termsafe.Line(sb.GetSandboxId()))
	known := e.GetState() != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	a.showExplained(e, textIf(known, enum.Word(e.GetState())), time.Now())
	return nil
}

func (a *app) explainAgent(ctx context.Context, ref string) error {
	one, err := a.agentKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	e, err := a.conn().ExplainAgent(ctx, one.GetAgentId())
	if client.IsNotFound(err) {
		return a.agentKind().notFound(ctx, ref)
	}
	if err != nil {
		return err
	}
	a.fact("Agent", one.GetName())
	a.fact("ID", termsafe.Line(one.GetAgentId()))
	a.showExplained(e, e.GetAgentState(), time.Now())
	return nil
}

func (a *app) showExplained(e *agboxv1.ExplainResponse, state string, now time.Time) {
	a.fact("Wanted", e.GetDesired())
	a.fact("State", state)
	if e.GetEngineProblem() != "" {
		a.fact("Engine", termsafe.Line(e.GetEngineProblem()))
		a.fact("Since", when(e.GetEngineProblemSince()))
	}
	a.factIf("Waiting", textIf(e.GetWaiting() != e.GetEngineProblem(), termsafe.Line(e.GetWaiting())))
	if e.GetLastError() != "" {
		a.fact("Last error", termsafe.Line(e.GetLastError()))
		a.fact("Tries", triesText(e, now))
	}
	a.list("Observed", e.GetObserved(), false)
	a.list("Differences", e.GetDifferences(), false)
	a.list("Next", e.GetNextSteps(), true)
	a.describeResumeSteps(e)
	if denied := e.GetDenied(); len(denied) > 0 {
		a.list("Denied by the network policy", denied, false)
	}
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
	if numbered {
		lines = slices.Clone(lines)
		for i := range lines {
			lines[i] = fmt.Sprintf("%d. %s", i+1, lines[i])
		}
	}
	a.lines(title, lines)
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
