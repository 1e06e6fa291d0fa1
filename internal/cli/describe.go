package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/termsafe"
)

// recentEvents is how many events describe shows.
const recentEvents = 10

func (a *app) describeCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "describe (NAME | exec/ID)", Short: "Show everything about one sandbox or exec", ValidArgsFunction: a.sandboxKind().first,
		Long:    "Show one sandbox with its agents, active execs and newest events. Values of envs are left out, except with -o.",
		Example: "  agbox describe web\n  agbox describe exec/0e12dd5b -o json",
		Args:    one(a.sandboxKind().one),
		RunE: func(cmd *cobra.Command, args []string) error {
			if bare(kindExec, args[0]) != args[0] {
				return a.describeExec(cmd.Context(), args[0], o)
			}
			sb, err := a.sandboxKind().full(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case o.given():
				return a.describeAs(cmd.Context(), sb, o)
			}
			return a.describe(cmd.Context(), sb)
		},
	}
	o = outputFlag(cmd, "json", "yaml")
	return cmd
}

// description is what describe shows of a sandbox or an agent, for programs.
type description struct {
	kindDocument
	Agents      []string          `json:"agents,omitempty"`
	Execs       []json.RawMessage `json:"execs,omitempty"`
	Explanation json.RawMessage   `json:"explanation,omitempty"` // of a FAILED sandbox
	Transitions []json.RawMessage `json:"transitions,omitempty"`
	Events      []json.RawMessage `json:"events,omitempty"`
}

func (a *app) describeAs(ctx context.Context, sb *agboxv1.SandboxHandle, o *output) error {
	a.warnEngine(ctx)
	doc, err := a.sandboxKind().document(sb)
	if err != nil {
		return err
	}
	d := description{kindDocument: doc}
	if d.Agents, err = a.agentsIn(ctx, sb); err != nil {
		return err
	}
	execs, err := a.conn().ListActiveExecs(ctx, sb.GetSandboxId())
	if err != nil {
		return err
	}
	events, err := a.newestEvents(ctx, sb)
	if err != nil {
		return err
	}
	if e := a.explanation(ctx, sb); e != nil {
		d.Explanation, err = manifest.JSON(e)
	}
	if err == nil {
		d.Execs, err = rawList(execs)
	}
	if err == nil {
		d.Events, err = rawList(events)
	}
	if err != nil {
		return err
	}
	return a.printAs(d, o)
}

func (a *app) agentsIn(ctx context.Context, sb *agboxv1.SandboxHandle) (names []string, err error) {
	agents, err := a.conn().ListAgents(ctx, sb.GetSandboxId(), nil)
	for _, one := range agents {
		names = append(names, agentName(one))
	}
	return names, err
}

func (a *app) describe(ctx context.Context, sb *agboxv1.SandboxHandle) error {
	a.warnEngine(ctx)
	a.describeFacts(sb)
	a.describeResume(ctx, sb)
	a.describeSpec(sb)
	names, err := a.agentsIn(ctx, sb)
	if err != nil {
		return err
	}
	a.factIf("Agents", strings.Join(names, ", "))
	execs, err := a.conn().ListActiveExecs(ctx, sb.GetSandboxId())
	if err != nil {
		return err
	}
	if len(execs) > 0 {
		fmt.Fprintln(a.Out, "Execs:")
		a.printExecs(execs, nil, "  ", commandWidth)
	}
	events, err := a.newestEvents(ctx, sb)
	fmt.Fprintln(a.Out, "Events:")
	for _, e := range events {
		fmt.Fprintln(a.Out, "  "+eventLine(e))
	}
	return err
}

// explanation returns which parts of a FAILED sandbox exist and the steps of a resume, or nil for another sandbox or if the daemon can't say.
func (a *app) explanation(ctx context.Context, sb *agboxv1.SandboxHandle) *agboxv1.ExplainResponse {
	if sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		return nil
	}
	e, err := a.conn().Explain(ctx, sb.GetSandboxId())
	if err != nil {
		return nil
	}
	return e
}

// describeResume prints the explanation, if there is one.
func (a *app) describeResume(ctx context.Context, sb *agboxv1.SandboxHandle) {
	if e := a.explanation(ctx, sb); e != nil {
		a.list("Observed", e.GetObserved(), false)
		a.describeResumeSteps(e)
	}
}

func (a *app) describeResumeSteps(e *agboxv1.ExplainResponse) {
	a.factIf("Resume", given("not possible: ", termsafe.Line(e.GetResumeRefusal()), ""))
	if steps := e.GetResumeSteps(); len(steps) > 0 {
		a.list("Resume would", steps, true)
	}
}

// newestEvents returns the newest events. If older ones were dropped or lost, it returns the retained ones.
func (a *app) newestEvents(ctx context.Context, sb *agboxv1.SandboxHandle) (events []*agboxv1.SandboxEvent, err error) {
	last := sb.GetLastEventSequence()
	from := max(last, recentEvents) - recentEvents
	keep := func(e *agboxv1.SandboxEvent) error {
		if e.GetSequence() > from {
			events = append(events, e)
		}
		return nil
	}
	err = a.printStored(ctx, sb, from, keep)
	if client.IsOutOfRange(err) {
		events = nil
		err = a.printStored(ctx, sb, 0, keep)
	}
	return events, err
}

func (a *app) describeFacts(sb *agboxv1.SandboxHandle) {
	a.fact("Name", sb.GetName())
	a.fact("ID", sb.GetSandboxId())
	a.fact("State", enum.Word(sb.GetState())+given(", to be ", sb.GetDesiredState(), ""))
	a.fact("Since", when(sb.GetStateChangedAt()))
	a.factIf("Error", termsafe.Line(given("", sb.GetErrorCode(), ": "+sb.GetErrorMessage())))
	a.factIf("Status", termsafe.Line(sb.GetStatusMessage()))
	a.describeLifetime(sb)
	a.fact("Created", when(sb.GetCreatedAt()))
	a.factIf("Restarts", textIf(sb.GetRestarts() > 0, fmt.Sprint(sb.GetRestarts())))
}

func (a *app) fact(name, value string) { fmt.Fprintf(a.Out, "%-12s %s\n", name+":", dash(value)) }

func when(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.AsTime().Local().Format(time.RFC3339), age(t.AsTime(), time.Now()))
}

// describeLifetime shows the deadline of the sandbox, whether a pause was demoted, and whether the record was rebuilt.
func (a *app) describeLifetime(sb *agboxv1.SandboxHandle) {
	a.factIf("Demoted", given("", when(sb.GetDemotedAt()), ", stopped to free its memory; its files are kept"))
	a.factIf("Timeout", textIf(sb.GetDeadlineAt() == nil || sb.GetTimeout().AsDuration() > 0, timeoutLength(sb)))
	a.factIf("On timeout", sb.GetOnTimeout())
	a.factIf("Deadline", deadlineText(sb, time.Now()))
	a.factIf("Rehydrated", textIf(sb.GetRehydrated() != nil, rehydrated(sb.GetRehydrated())))
}

func timeoutLength(sb *agboxv1.SandboxHandle) string {
	if d := sb.GetTimeout().AsDuration(); d > 0 {
		return span(d)
	}
	return never
}

// deadlineText is "2026-12-01T11:00:00+01:00 (in 1h23m)", or "" without a deadline.
func deadlineText(sb *agboxv1.SandboxHandle, now time.Time) string {
	if sb.GetDeadlineAt() == nil {
		return ""
	}
	at := sb.GetDeadlineAt().AsTime()
	text := fmt.Sprintf("%s (%s)", at.Local().Format(time.RFC3339), ahead(at, now))
	if sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		return text
	}
	if at.After(now) {
		return text + notWhilePaused
	}
	return text + ", starts over when it is resumed"
}

// rehydrated says when a record was rebuilt and which fields were guessed.
func rehydrated(r *agboxv1.RehydratedDetails) string {
	guessed := given(", guessed: ", termsafe.Line(strings.Join(r.GetDefaulted(), ", ")), "")
	return when(r.GetRehydratedAt()) + cmp.Or(guessed, ", everything was known")
}
