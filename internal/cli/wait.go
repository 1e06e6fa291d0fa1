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
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
)

// lookEvery is the pause between notes of what an object waits for. A wait that is shorter prints none. Without an event of the object the
// pauses grow to mostLook.
const (
	lookEvery = time.Second
	mostLook  = 8 * time.Second
)

// lateLook bounds the last read of an object whose time is up.
const lateLook = 3 * time.Second

const servicePrefix = "service="

func (a *app) waitCommand() *cobra.Command {
	var condition string
	var timeout time.Duration
	var labels *selector
	conditions := []string{"ready", "stopped", "paused", "deleted", "failed", servicePrefix}
	cmd := &cobra.Command{
		Use: "wait ((NAME... | -l SELECTOR) [--for CONDITION] | exec/ID)", Short: "Wait until sandboxes reach a state, or an exec ends", ValidArgsFunction: a.sandboxKind().names,
		Long: `Wait until each of the sandboxes is ready, stopped, paused, deleted or failed, or until a service of it is ready. It requests no
change: "agbox stop" and the like do. It fails when the condition can no longer be met, and after --timeout.

With exec/ID, wait until the exec has ended, and exit as its command did, like "agbox exec".`,
		Example: "  agbox wait web --for=ready --timeout=2m\n  agbox wait web --for=service=db\n  agbox wait web db --for=deleted\n  agbox wait exec/0e12dd5b",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := namesOrSelector(cmd, args, labels, a.sandboxKind().one); err != nil {
				return err
			}
			if len(args) > 0 && bare(kindExec, args[0]) != args[0] {
				if len(args) > 1 || cmd.Flags().Changed("for") {
					return usagef(cmd, "expected one exec, without --for: the exit code is that of its command")
				}
				return a.waitExec(cmd.Context(), args[0], timeout)
			}
			want, err := parseCondition(cmd, condition)
			if err != nil {
				return err
			}
			return a.wait(cmd.Context(), args, labels, want, timeout)
		},
	}
	labels = a.selectorFlag(cmd, "all sandboxes that have these labels now")
	cmd.Flags().StringVar(&condition, "for", "ready", "ready, stopped, paused, deleted, failed or service=NAME")
	cmd.Flags().Var(quantity.NewDurationFlag(&timeout, defaultWait), "timeout", "give up after this long")
	completeFlag(cmd, "for", conditions...)
	return cmd
}

// waitExec waits until an exec has ended and returns its outcome.
func (a *app) waitExec(ctx context.Context, ref string, timeout time.Duration) error {
	e, err := a.findExec(ctx, ref)
	if err != nil {
		return notRun(ctx, a.notAnExec(ctx, ref, err))
	}
	waitCtx, done := context.WithTimeout(ctx, timeout)
	defer done()
	id := e.GetExecId()
	if e, err = a.conn().WaitExec(waitCtx, id); errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("exec %s has not ended after %s; it continues", id, timeout)
	}
	if err != nil {
		return notRun(ctx, err)
	}
	fmt.Fprintf(a.Out, "exec/%s %s\n", id, strings.ToLower(enum.Word(e.GetState())))
	return execResult(e)
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

func (a *app) wait(ctx context.Context, refs []string, labels *selector, want client.Condition, timeout time.Duration) error {
	var missing func(string)
	if want == client.Deleted {
		missing = func(ref string) { fmt.Fprintf(a.Err, "sandbox %q does not exist, which counts as deleted\n", ref) }
	}
	all, failed, err := find(ctx, a, a.sandboxKind(), refs, missing)
	if labels.given() {
		all, err = a.sandboxKind().selected(ctx, labels)
		if err == nil && len(all) == 0 && want != client.Deleted {
			err = errors.New(a.sandboxKind().noneSelected())
		}
	}
	if err != nil {
		return err
	}
	a.warnEngine(ctx)
	return outcomeOf(ctx, a.waitWithoutRequest(ctx, all, want, timeout) || failed)
}

// waitWithoutRequest is waitAll for sandboxes that were not asked to change: those that only a resume makes READY fail at once.
func (a *app) waitWithoutRequest(ctx context.Context, all []*agboxv1.SandboxHandle, want client.Condition, timeout time.Duration) (failed bool) {
	var moving []*agboxv1.SandboxHandle
	for _, sb := range all {
		if want == client.Ready && sandboxstate.IsResumable(sb.GetState()) {
			a.complain(fmt.Errorf("sandbox %s is %s; %s", nameOrID(sb), enum.Word(sb.GetState()), resumeHint(sb)))
			failed = true
			continue
		}
		moving = append(moving, sb)
	}
	return waitAll(ctx, a, a.sandboxKind(), moving, string(want), timeout) || failed
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

// waitAll waits for each object in turn, all within one timeout, prints how each ended, and reports whether any failed.
func waitAll[H handle](ctx context.Context, a *app, k kind[H], all []H, want string, timeout time.Duration) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, one := range all {
		_, err := await(ctx, a, k, one, want, timeout)
		if err == nil {
			subject, state := conditionWords(k.label(one), want)
			fmt.Fprintf(a.Out, "%s %s\n", subject, state)
			continue
		}
		if !errors.Is(err, context.Canceled) && !isInterrupt(ctx) {
			a.complain(err)
		}
		failed = true
	}
	return failed
}

// await waits until an object meets a condition and returns its handle of that moment. Meanwhile it prints the object's state and status
// message. It reads the handle for them after each event, and now and then without one, because no event carries the status message.
// timeout is that of ctx.
func await[H handle](ctx context.Context, a *app, k kind[H], one H, want string, timeout time.Duration) (now H, err error) {
	p := &pulls{notes: a.notes, name: k.name(one), changed: make(chan struct{}, 1)}
	subject, state := conditionWords(k.label(one), want)
	stop := a.noteWaiting(ctx, p.changed, func(ctx context.Context) (string, bool) {
		now, err := k.read(ctx, k.id(one))
		if err != nil {
			return "", false // the wait itself meets the same error
		}
		return fmt.Sprintf("waiting for %s to be %s: %s", subject, state, k.facts(now)), p.busy() // the pull has its own line; the status has newer numbers
	})
	now, err = k.wait(ctx, one, want, p)
	stop()
	if !errors.Is(err, context.DeadlineExceeded) {
		return now, err
	}
	text := fmt.Sprintf("%s is not %s after %s; the daemon continues", strings.Replace(subject, "/", " ", 1), state, timeout)
	late, cancel := context.WithTimeout(context.Background(), lateLook)
	defer cancel()
	if now, err = k.read(late, k.id(one)); err == nil {
		text += ", now " + k.facts(now)
	}
	var none H
	return none, errors.New(text)
}

// waitSandbox is kind.wait.
func (a *app) waitSandbox(ctx context.Context, sb *agboxv1.SandboxHandle, want string, p *pulls) (*agboxv1.SandboxHandle, error) {
	options := client.WaitOptions{OnEvent: p.observe, From: sb.GetLastEventSequence()}
	now, err := a.conn().WaitSandboxWith(ctx, sb.GetSandboxId(), client.Condition(want), options)
	failed, ok := errors.AsType[*client.FailedError](err)
	if !ok {
		return now, err
	}
	text := fmt.Sprintf("sandbox %s is %s", nameOrID(sb), enum.Word(failed.Sandbox.GetState()))
	switch {
	case failed.Why != "":
		text = fmt.Sprintf("sandbox %s: %s", nameOrID(sb), failed.Why)
	case failed.Sandbox.GetErrorCode() != "":
		text += fmt.Sprintf(": %s: %s", failed.Sandbox.GetErrorCode(), failed.Sandbox.GetErrorMessage())
	}
	return nil, fmt.Errorf("%s; see \"agbox describe %s\"", text, nameOrID(sb))
}

// sandboxFacts is kind.facts.
func sandboxFacts(sb *agboxv1.SandboxHandle) string {
	return joinError(enum.Word(sb.GetState()), sb.GetStatusMessage())
}

// noteWaiting prints what observe returns, once a second at most, until stop is called: after each value of changed, and with growing pauses
// without one; a nil changed: once a second. Nothing is printed for an empty text; a passing one is shown on terminals only.
func (a *app) noteWaiting(ctx context.Context, changed <-chan struct{}, observe func(context.Context) (text string, passing bool)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for pause := time.Duration(0); wait.For(ctx, lookEvery) == nil; pause = untilChange(ctx, changed, pause) {
			switch text, passing := observe(ctx); {
			case text == "" || ctx.Err() != nil:
			case passing:
				a.notes.show(text)
			default:
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

// untilChange waits for a value of changed, at most for pause, and returns the next pause. A nil changed: it does not wait.
func untilChange(ctx context.Context, changed <-chan struct{}, pause time.Duration) time.Duration {
	if changed == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	select {
	case <-changed:
		return 0
	case <-ctx.Done():
		return min(2*pause+lookEvery, mostLook)
	}
}

// conditionWords returns the object that a condition is about and the state that it waits for: "sandbox/web", "ready".
func conditionWords(label, want string) (subject, state string) {
	if service, ok := strings.CutPrefix(want, servicePrefix); ok {
		return fmt.Sprintf("%s service/%s", label, service), "ready"
	}
	return label, want
}

func isInterrupt(ctx context.Context) bool {
	_, ok := errors.AsType[*Signalled](context.Cause(ctx))
	return ok
}
