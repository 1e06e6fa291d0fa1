package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agbox/agbox/apis/enum"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// Condition is what WaitSandbox waits for.
type Condition string

// Conditions of a sandbox.
const (
	Ready   Condition = "ready"
	Stopped Condition = "stopped"
	// Paused is met by a frozen sandbox and by one that was stopped since to save its memory. One that is STOPPED or FAILED
	// fails it.
	Paused  Condition = "paused"
	Deleted Condition = "deleted"
	Failed  Condition = "failed"
)

// servicePrefix is the start of the condition of a service.
const servicePrefix = "service="

// ServiceReady is met while the service of that name is READY, "service=NAME".
func ServiceReady(name string) Condition { return Condition(servicePrefix + name) }

// FailedError means that a sandbox can no longer meet the awaited condition.
type FailedError struct {
	Sandbox *agboxv1.SandboxHandle
	Want    Condition
	// Why is the reason if the sandbox's state and error do not show it; otherwise empty.
	Why string
}

// Error names the sandbox, its state and why.
func (e *FailedError) Error() string {
	sb := e.Sandbox
	if e.Why != "" {
		return fmt.Sprintf("sandbox %s will not be %s: %s", sb.GetSandboxId(), e.Want, e.Why)
	}
	text := fmt.Sprintf("sandbox %s will not be %s: it is %s", sb.GetSandboxId(), e.Want, enum.Word(sb.GetState()))
	if sb.GetErrorCode() != "" {
		text += fmt.Sprintf(" (%s: %s)", sb.GetErrorCode(), sb.GetErrorMessage())
	}
	return text
}

// WaitOptions change how WaitSandboxWith waits.
type WaitOptions struct {
	// OnEvent is called in the waiting goroutine with each event of the wait, once and in order. It may be nil.
	OnEvent func(*agboxv1.SandboxEvent)
	// From is a sequence, such as that of the answer to a create; OnEvent gets newer events, even if the condition is already
	// met. 0: events since the start of the wait.
	From uint64
}

// WaitSandbox returns once the sandbox meets the condition. It fails with *FailedError on the first FAILED, and when a
// delete makes the condition impossible. It requests no change: call ResumeSandbox, PauseSandbox,
// StopSandbox or DeleteSandbox first. A sandbox that is purged during the wait counts as deleted. While the daemon does not answer it
// keeps trying, so give ctx a deadline.
func (c *Client) WaitSandbox(ctx context.Context, sandboxID string, want Condition) (*agboxv1.SandboxHandle, error) {
	return c.WaitSandboxWith(ctx, sandboxID, want, WaitOptions{})
}

// WaitSandboxWith is WaitSandbox with options.
func (c *Client) WaitSandboxWith(ctx context.Context, sandboxID string, want Condition, o WaitOptions) (*agboxv1.SandboxHandle, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last *agboxv1.SandboxHandle
	from := o.From
	for {
		resp, err := again(ctx, c, c.sandboxes.GetSandbox, &agboxv1.GetSandboxRequest{SandboxId: sandboxID})
		sb, done := resp.GetSandbox(), false
		var verdict error
		if err == nil {
			first := last == nil
			last = sb
			done, verdict = judge(sb, want)
			if first || !done { // a later verdict does not wait for events
				err = c.followSandbox(ctx, sb, done, &from, o.OnEvent)
			}
		}
		switch {
		case IsNotFound(err) && want == Deleted && last != nil:
			return last, nil
		case err != nil:
			return nil, ended(ctx, err)
		case done:
			return sb, verdict
		}
	}
}

// followSandbox passes the events after from to observe, and advances from: up to the last one of sb if the wait is done, otherwise up
// to the next one with a state.
func (c *Client) followSandbox(ctx context.Context, sb *agboxv1.SandboxHandle, done bool, from *uint64, observe func(*agboxv1.SandboxEvent)) error {
	last := sb.GetLastEventSequence()
	if observe == nil {
		observe = func(*agboxv1.SandboxEvent) {}
		*from = last
	}
	*from = cmp.Or(*from, last)
	if done && *from >= last {
		return nil
	}
	for e, err := range c.Events(ctx, sb.GetSandboxId(), EventOptions{From: *from, Reconnect: true}) {
		switch {
		case IsOutOfRange(err): // the events were dropped, or the daemon came back with an older history
			*from = 0
			return nil
		case done && IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		*from = e.GetSequence()
		observe(e)
		if done && *from >= last || !done && *from > last && e.GetSandboxState() != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
			return nil
		}
	}
	return nil
}

func judge(sb *agboxv1.SandboxHandle, want Condition) (done bool, err error) {
	state := sb.GetState()
	switch {
	case state == agboxv1.SandboxState_SANDBOX_STATE_READY && want == Ready && sb.GetDesiredState() == "",
		state == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && want == Stopped,
		state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && want == Paused && sb.GetDesiredState() == "",
		state == agboxv1.SandboxState_SANDBOX_STATE_DELETED && want == Deleted,
		state == agboxv1.SandboxState_SANDBOX_STATE_FAILED && want == Failed:
		return true, nil
	case state == agboxv1.SandboxState_SANDBOX_STATE_FAILED,
		state == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && want == Paused, // stopped meanwhile, or its engine died
		state == agboxv1.SandboxState_SANDBOX_STATE_DELETING && want != Deleted,
		state == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		return true, &FailedError{Sandbox: sb, Want: want}
	}
	if name, ok := strings.CutPrefix(string(want), servicePrefix); ok {
		return judgeService(sb, want, name)
	}
	return false, nil
}

// judgeService checks one service of a live sandbox. A failed one without a restart policy will not be ready.
func judgeService(sb *agboxv1.SandboxHandle, want Condition, name string) (done bool, err error) {
	all := slices.Concat(sb.GetRequiredServices(), sb.GetOptionalServices())
	i := slices.IndexFunc(all, func(s *agboxv1.ServiceSpec) bool { return s.GetName() == name })
	if i < 0 {
		return true, &FailedError{Sandbox: sb, Want: want, Why: fmt.Sprintf("it has no service %q", name)}
	}
	policy := all[i].GetRestartPolicy()
	for _, s := range sb.GetServices() {
		switch {
		case s.GetName() != name:
		case s.GetState() == "READY":
			return !sandboxstate.IsResumable(sb.GetState()), nil // else it is said of a run that is over, or the service is frozen
		case s.GetState() == "FAILED" && (policy == "" || policy == "never"):
			return true, &FailedError{Sandbox: sb, Want: want, Why: fmt.Sprintf("the service failed (%s: %s)", s.GetErrorCode(), s.GetErrorMessage())}
		}
	}
	return false, nil
}

func (c *Client) readExec(ctx context.Context, id string) (*agboxv1.ExecStatus, error) {
	resp, err := again(ctx, c, c.sandboxes.GetExec, &agboxv1.GetExecRequest{ExecId: id})
	return resp.GetExec(), err
}

// WaitExec returns once the exec has ended; its state, exit code and error say how. It fails if the exec is unknown
// or its history is purged, and keeps trying while the daemon does not answer, like WaitSandbox.
func (c *Client) WaitExec(ctx context.Context, execID string) (*agboxv1.ExecStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := c.readExec(ctx, execID)
	for err == nil && e.GetState() == agboxv1.ExecState_EXEC_STATE_RUNNING {
		if err = c.awaitExecEvent(ctx, e); err != nil {
			break
		}
		e, err = c.readExec(ctx, execID)
	}
	if err != nil {
		return nil, ended(ctx, err)
	}
	return e, nil
}

// awaitExecEvent blocks until the sandbox has a newer event of this exec, or its history is gone or replaced.
func (c *Client) awaitExecEvent(ctx context.Context, e *agboxv1.ExecStatus) error {
	for ev, err := range c.Events(ctx, e.GetSandboxId(), EventOptions{From: e.GetLastEventSequence(), Reconnect: true}) {
		if IsOutOfRange(err) || IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if ev.GetExec().GetExecId() == e.GetExecId() {
			return nil
		}
	}
	return nil
}

// again is once, repeated while the daemon is not reachable.
func again[Req, Resp any](ctx context.Context, c *Client, m method[Req, Resp], req Req) (Resp, error) {
	var pause retry
	for {
		v, err := once(ctx, c, m, req, grpc.WaitForReady(true))
		deadline := is(err, codes.DeadlineExceeded) && ctx.Err() == nil // of the one call: the daemon is still away
		if !IsUnavailable(err) && !deadline {
			return v, err
		}
		if err := pause.wait(ctx); err != nil {
			return v, err
		}
	}
}
