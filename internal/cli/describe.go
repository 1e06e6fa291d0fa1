package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/client"
)

// recentEvents is how many events describe shows.
const recentEvents = 10

func (a *app) describeCommand() *cobra.Command {
	sandbox := withOne(a.sandboxKind().full, a.describe)
	return &cobra.Command{
		Use: "describe (NAME | exec/ID)", Short: "Show everything about one sandbox or exec", ValidArgsFunction: a.sandboxKind().first,
		Long:    "Show one sandbox with its agents, active execs and newest events. Values of envs are left out; \"get -o yaml\" has them.",
		Example: "  agbox describe web\n  agbox describe exec/0e12dd5b",
		Args:    one(a.sandboxKind().one),
		RunE: func(cmd *cobra.Command, args []string) error {
			if bare(kindExec, args[0]) != args[0] {
				return a.describeExec(cmd.Context(), args[0])
			}
			return sandbox(cmd, args)
		},
	}
}

func (a *app) describe(ctx context.Context, sb *agboxv1.SandboxHandle) error {
	a.warnEngine(ctx)
	a.describeFacts(sb)
	a.describeResume(ctx, sb)
	a.describeSpec(sb)
	agents, err := a.conn().ListAgents(ctx, sb.GetSandboxId(), nil)
	if err != nil {
		return err
	}
	var names []string
	for _, one := range agents {
		names = append(names, agentName(one))
	}
	a.factIf("Agents", strings.Join(names, ", "))
	execs, err := a.conn().ListActiveExecs(ctx, sb.GetSandboxId())
	if err != nil {
		return err
	}
	if len(execs) > 0 {
		fmt.Fprintln(a.Out, "Execs:")
		a.printExecs(execs, nil, "  ")
	}
	return a.describeEvents(ctx, sb)
}

// describeResume prints which parts of a FAILED sandbox exist and the steps of a resume. It prints nothing if the daemon can't say.
func (a *app) describeResume(ctx context.Context, sb *agboxv1.SandboxHandle) {
	if sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		return
	}
	e, err := a.conn().Explain(ctx, sb.GetSandboxId())
	if err != nil {
		return
	}
	a.list("Observed", e.GetObserved(), false)
	a.describeResumeSteps(e)
}

func (a *app) describeResumeSteps(e *agboxv1.ExplainResponse) {
	a.factIf("Resume", given("not possible: ", oneLine(e.GetResumeRefusal()), ""))
	if steps := e.GetResumeSteps(); len(steps) > 0 {
		a.list("Resume would", steps, true)
	}
}

// describeEvents shows the newest events. If older ones were dropped or lost, it shows the retained ones.
func (a *app) describeEvents(ctx context.Context, sb *agboxv1.SandboxHandle) error {
	last := sb.GetLastEventSequence()
	from := max(last, recentEvents) - recentEvents
	fmt.Fprintln(a.Out, "Events:")
	show := func(e *agboxv1.SandboxEvent) error {
		if e.GetSequence() > from {
			fmt.Fprintln(a.Out, "  "+eventLine(e))
		}
		return nil
	}
	err := a.printStored(ctx, sb, from, show)
	if client.IsOutOfRange(err) {
		err = a.printStored(ctx, sb, 0, show)
	}
	return err
}

func (a *app) describeFacts(sb *agboxv1.SandboxHandle) {
	a.fact("Name", sb.GetName())
	a.fact("ID", sb.GetSandboxId())
	a.fact("State", enum.Word(sb.GetState())+given(", to be ", sb.GetDesiredState(), ""))
	a.fact("Since", when(sb.GetStateChangedAt()))
	a.factIf("Error", oneLine(given("", sb.GetErrorCode(), ": "+sb.GetErrorMessage())))
	a.factIf("Status", oneLine(sb.GetStatusMessage()))
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
	a.fact("Timeout", timeoutLength(sb))
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
	guessed := given(", guessed: ", oneLine(strings.Join(r.GetDefaulted(), ", ")), "")
	return when(r.GetRehydratedAt()) + cmp.Or(guessed, ", everything was known")
}
