package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var from uint64
	cmd := &cobra.Command{
		Use: "events NAME", Short: "Show the events of a sandbox", ValidArgsFunction: a.sandboxKind().first,
		Long:    "Show the events of a sandbox, oldest first. With -f follow new ones until the sandbox is deleted.",
		Example: "  agbox events web\n  agbox events web -f -o json",
		Args:    one(a.sandboxKind().one),
	}
	output := outputFlag(cmd, "json")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new events")
	cmd.Flags().Uint64Var(&from, "from", 0, "only events after this sequence number")
	cmd.RunE = withOne(a.sandboxKind().resolve, func(ctx context.Context, sb *agboxv1.SandboxHandle) error {
		show := a.eventPrinter(output.given())
		if !follow || sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
			return a.printStored(ctx, sb, from, show)
		}
		for e, err := range a.conn().Events(ctx, sb.GetSandboxId(), client.EventOptions{From: from, Reconnect: true}) {
			if err == nil {
				err = show(e)
			}
			if err != nil || e.GetEventType() == agboxv1.EventType_SANDBOX_DELETED {
				return err
			}
		}
		return nil
	})
	return cmd
}

func (a *app) eventPrinter(asJSON bool) func(*agboxv1.SandboxEvent) error {
	return func(e *agboxv1.SandboxEvent) error {
		if asJSON {
			return printLines(a.Out, []*agboxv1.SandboxEvent{e})
		}
		_, err := fmt.Fprintln(a.Out, eventLine(e))
		return err
	}
}

// printStored shows the events after from up to the last_event_sequence of sb.
func (a *app) printStored(ctx context.Context, sb *agboxv1.SandboxHandle, from uint64, show func(*agboxv1.SandboxEvent) error) error {
	last := sb.GetLastEventSequence()
	if from == last {
		return nil
	}
	return upTo(last, a.conn().Events(ctx, sb.GetSandboxId(), client.EventOptions{From: from}), show)
}

// upTo calls see with the events up to a sequence number.
func upTo[E interface{ GetSequence() uint64 }](last uint64, events iter.Seq2[E, error], see func(E) error) error {
	for e, err := range events {
		if err == nil {
			err = see(e)
		}
		if err != nil || e.GetSequence() >= last {
			return err
		}
	}
	return nil
}

// eventLine is "3  2026-01-02T15:04:05Z  SANDBOX_READY  READY" with the details of the event.
func eventLine(e *agboxv1.SandboxEvent) string {
	parts := []string{
		fmt.Sprintf("%-4d", e.GetSequence()),
		e.GetOccurredAt().AsTime().Local().Format(time.RFC3339),
		fmt.Sprintf("%-24s", e.GetEventType()),
	}
	if e.GetSandboxState() != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
		parts = append(parts, enum.Word(e.GetSandboxState()))
	}
	parts = append(parts, eventDetails(e)...)
	return termsafe.Line(strings.TrimRight(strings.Join(parts, "  "), " "))
}

func eventDetails(e *agboxv1.SandboxEvent) (parts []string) {
	say := func(key, value string) {
		if value != "" {
			parts = append(parts, key+"="+value)
		}
	}
	phase, x, service := e.GetSandboxPhase(), e.GetExec(), e.GetService()
	say("phase", phase.GetPhase())
	say("reason", phase.GetReason())
	say("error", joinError(phase.GetErrorCode(), phase.GetErrorMessage()))
	say("before", phase.GetEndMessage())
	say("exec", x.GetExecId())
	say("command", commandLine(x.GetCommand(), 2*commandWidth))
	if x.GetExecState() == agboxv1.ExecState_EXEC_STATE_FINISHED || x.GetExecState() == agboxv1.ExecState_EXEC_STATE_FAILED {
		say("exit_code", fmt.Sprint(x.GetExitCode()))
	}
	say("error", joinError(x.GetErrorCode(), x.GetErrorMessage()))
	if p := e.GetImagePull(); p != nil {
		say("image", p.GetImage())
		say("service", p.GetServiceName())
		parts = append(parts, strings.TrimSpace(p.GetStatus()+pullAmount(p)))
	}
	say("changed", strings.Join(e.GetSpecChange().GetFields(), ", "))
	if t := e.GetTimeoutSet(); t != nil {
		say("deadline", deadlineSet(t))
	}
	if r := e.GetRehydrated(); r != nil {
		say("guessed", cmp.Or(strings.Join(r.GetDefaulted(), ", "), "nothing"))
		say("error", joinError(r.GetErrorCode(), r.GetErrorMessage()))
	}
	if d := e.GetNetworkDenied(); d != nil {
		say("denied", deniedText(d))
	}
	say("service", service.GetServiceName())
	say("error", joinError(service.GetErrorCode(), service.GetErrorMessage()))
	return parts
}

// deniedText is "10.0.0.9:443/tcp (3), evil.example (1) and 12 more".
func deniedText(d *agboxv1.NetworkDeniedDetails) string {
	var all []string
	for _, one := range d.GetDenials() {
		all = append(all, fmt.Sprintf("%s (%d)", one.GetDestination(), one.GetCount()))
	}
	text := strings.Join(all, ", ")
	if d.GetMore() > 0 {
		text += fmt.Sprintf(" and %d more", d.GetMore())
	}
	return text
}

func deadlineSet(t *agboxv1.TimeoutDetails) string {
	if t.GetDeadlineAt() == nil {
		return never
	}
	return t.GetDeadlineAt().AsTime().Local().Format(time.RFC3339)
}

func joinError(code, message string) string { return code + given(": ", message, "") }
