package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/internal/wait"

	"github.com/agbox/agbox/apis/enum"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// lookEvery is the pause between reads of a sandbox's status message during a wait, and the time before the first.
const lookEvery = time.Second

// lateLook bounds the last read of a sandbox after a timeout.
const lateLook = 3 * time.Second

const servicePrefix = "service="

func (a *app) waitCommand() *cobra.Command {
	var condition string
	var timeout time.Duration
	conditions := []string{"ready", "stopped", "paused", "deleted", "failed", servicePrefix}
	cmd := &cobra.Command{
		Use: "wait NAME... [--for CONDITION]", Short: "Wait until sandboxes reach a state", ValidArgsFunction: a.completeNames,
		Long: `Wait until each of the sandboxes is ready, stopped, paused, deleted or failed, or until a service of it is ready. It requests no
change: "agbox stop" and the like do. It fails when the condition can no longer be met, and after --timeout.`,
		Example: "  agbox wait web --for=ready --timeout=2m\n  agbox wait web --for=service=db\n  agbox wait web db --for=deleted",
		Args:    atLeastOne("the name or ID of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := parseCondition(cmd, condition)
			if err != nil {
				return err
			}
			return a.wait(cmd.Context(), args, want, timeout)
		},
	}
	cmd.Flags().StringVar(&condition, "for", "ready", "ready, stopped, paused, deleted, failed or service=NAME")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "give up after this long")
	completeFlag(cmd, "for", conditions...)
	return cmd
}

func parseCondition(cmd *cobra.Command, text string) (client.Condition, error) {
	switch want := client.Condition(text); want {
	case client.Ready, client.Stopped, client.Paused, client.Deleted, client.Failed:
		return want, nil
	case "delete": // kubectl's word
		return client.Deleted, nil
	}
	if name, ok := strings.CutPrefix(text, servicePrefix); ok && name != "" {
		return client.ServiceReady(name), nil
	}
	return "", usagef(cmd, "unknown condition %q; known: ready, stopped, paused, deleted, failed, service=NAME", text)
}

func (a *app) wait(ctx context.Context, refs []string, want client.Condition, timeout time.Duration) error {
	var all []*agboxv1.SandboxHandle
	failed := false
	for _, ref := range refs {
		sb, err := a.resolve(ctx, ref)
		var missing *notFoundError
		switch {
		case err == nil:
			all = append(all, sb)
		case want == client.Deleted && errors.As(err, &missing):
			fmt.Fprintf(a.Err, "sandbox %q does not exist, which counts as deleted\n", ref)
		case client.IsUnavailable(err) || ctx.Err() != nil:
			return err
		default:
			a.complain(err)
			failed = true
		}
	}
	if a.conn != nil {
		a.warnEngine(ctx, a.conn)
		failed = a.waitAll(ctx, a.conn, all, want, timeout) || failed
	}
	return outcomeOf(ctx, failed)
}

// outcomeOf returns the exit of a verb that has already printed its errors.
func outcomeOf(ctx context.Context, failed bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

// waitAll waits for each sandbox in turn, all within one timeout, prints each result, and reports whether any failed.
func (a *app) waitAll(ctx context.Context, c *client.Client, all []*agboxv1.SandboxHandle, want client.Condition, timeout time.Duration) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, sb := range all {
		err := a.waitOne(ctx, c, sb, want)
		if err == nil {
			subject, state := conditionWords(sb, want)
			fmt.Fprintf(a.Out, "%s %s\n", subject, state)
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = a.lateError(c, sb, want, timeout)
		}
		if !errors.Is(err, context.Canceled) && !isInterrupt(ctx) {
			a.complain(err)
		}
		failed = true
	}
	return failed
}

// waitOne waits for one sandbox and shows what it waits for. It prints no result.
func (a *app) waitOne(ctx context.Context, c *client.Client, sb *agboxv1.SandboxHandle, want client.Condition) error {
	if want == client.Ready && sandboxstate.Rests(sb.GetState()) {
		return fmt.Errorf("sandbox %s is %s; %s", nameOrID(sb), enum.Word(sb.GetState()), resumeHint(sb))
	}
	p := &pulls{notes: a.notes, name: nameOrID(sb)}
	stop := a.tellStatus(ctx, c, sb, want, p)
	_, err := c.WaitSandboxWith(ctx, sb.GetSandboxId(), want, client.WaitOptions{OnEvent: p.observe, From: sb.GetLastEventSequence()})
	stop()
	if err != nil {
		return waitError(sb, err)
	}
	return nil
}

// tellStatus regularly shows what the daemon waits for, until stop is called.
func (a *app) tellStatus(ctx context.Context, c *client.Client, sb *agboxv1.SandboxHandle, want client.Condition, p *pulls) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for wait.For(ctx, lookEvery) == nil {
			now, err := c.GetSandbox(ctx, sb.GetSandboxId())
			if err != nil || ctx.Err() != nil {
				continue // the wait returns the error
			}
			subject, state := conditionWords(sb, want)
			text := fmt.Sprintf("waiting for %s to be %s", subject, state)
			if now.GetStatusMessage() != "" {
				text += ": " + now.GetStatusMessage()
			}
			if p.busy() { // pulls show it already, and the status would repeat it with other numbers
				a.notes.show(text)
			} else {
				a.notes.say(text)
			}
		}
	}()
	return func() {
		cancel()
		<-gone
		a.notes.clear()
	}
}

// conditionWords are the object and the state of a condition: "sandbox/web", "ready".
func conditionWords(sb *agboxv1.SandboxHandle, want client.Condition) (subject, state string) {
	if service, ok := strings.CutPrefix(string(want), servicePrefix); ok {
		return fmt.Sprintf("sandbox/%s service/%s", nameOrID(sb), service), "ready"
	}
	return "sandbox/" + nameOrID(sb), string(want)
}

// waitError adds the sandbox's name and the command that shows more.
func waitError(sb *agboxv1.SandboxHandle, err error) error {
	var failed *client.FailedError
	if !errors.As(err, &failed) {
		return err
	}
	text := fmt.Sprintf("sandbox %s is %s", nameOrID(sb), enum.Word(failed.Sandbox.GetState()))
	switch {
	case failed.Why != "":
		text = fmt.Sprintf("sandbox %s: %s", nameOrID(sb), failed.Why)
	case failed.Sandbox.GetErrorCode() != "":
		text += fmt.Sprintf(": %s: %s", failed.Sandbox.GetErrorCode(), failed.Sandbox.GetErrorMessage())
	}
	return fmt.Errorf("%s; see \"agbox describe %s\"", text, failed.Sandbox.GetSandboxId())
}

// lateError says what the daemon was doing at the timeout.
func (a *app) lateError(c *client.Client, sb *agboxv1.SandboxHandle, want client.Condition, timeout time.Duration) error {
	subject, state := conditionWords(sb, want)
	if !strings.Contains(subject, " ") {
		subject = "sandbox " + nameOrID(sb)
	}
	text := fmt.Sprintf("%s is not %s after %s; the daemon continues", subject, state, timeout)
	ctx, cancel := context.WithTimeout(context.Background(), lateLook)
	defer cancel()
	if now, err := c.GetSandbox(ctx, sb.GetSandboxId()); err == nil {
		text += ", now " + enum.Word(now.GetState())
		if now.GetStatusMessage() != "" {
			text += ": " + now.GetStatusMessage()
		}
	}
	return errors.New(text)
}

func isInterrupt(ctx context.Context) bool {
	var i *Interrupted
	return errors.As(context.Cause(ctx), &i)
}
