package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// waitAll waits for each sandbox in turn, all within one timeout, says how each ended, and reports whether any failed.
func (a *app) waitAll(ctx context.Context, c *client.Client, all []*agboxv1.SandboxHandle, want client.Condition, timeout time.Duration) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, sb := range all {
		if err := a.waitOne(ctx, c, sb, want); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = a.lateError(c, sb, want, timeout)
			}
			if !errors.Is(err, context.Canceled) && !isInterrupt(ctx) {
				a.complain(err)
			}
			failed = true
		}
	}
	return failed
}

func (a *app) waitOne(ctx context.Context, c *client.Client, sb *agboxv1.SandboxHandle, want client.Condition) error {
	if isTerminal(a.Err) {
		fmt.Fprintf(a.Err, "waiting for %s to be %s ...\n", nameOrID(sb), want)
	}
	if want == client.Ready && sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_STOPPED {
		return fmt.Errorf("sandbox %s is STOPPED; \"agbox resume %s\" starts it", nameOrID(sb), nameOrID(sb))
	}
	if _, err := c.WaitSandbox(ctx, sb.GetSandboxId(), want); err != nil {
		return waitError(sb, err)
	}
	fmt.Fprintf(a.Out, "sandbox/%s %s\n", nameOrID(sb), want)
	return nil
}

// waitError calls the sandbox by its name and says where to look.
func waitError(sb *agboxv1.SandboxHandle, err error) error {
	var failed *client.FailedError
	if !errors.As(err, &failed) {
		return err
	}
	text := fmt.Sprintf("sandbox %s is %s", nameOrID(sb), client.StateName(failed.Sandbox.GetState()))
	if failed.Sandbox.GetErrorCode() != "" {
		text += fmt.Sprintf(": %s: %s", failed.Sandbox.GetErrorCode(), failed.Sandbox.GetErrorMessage())
	}
	return fmt.Errorf("%s; see \"agbox describe %s\"", text, failed.Sandbox.GetSandboxId())
}

// lateError says what the daemon was doing when the time was up.
func (a *app) lateError(c *client.Client, sb *agboxv1.SandboxHandle, want client.Condition, timeout time.Duration) error {
	text := fmt.Sprintf("sandbox %s is not %s after %s; it goes on", nameOrID(sb), want, timeout)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if now, err := c.GetSandbox(ctx, sb.GetSandboxId()); err == nil {
		text += ", now " + client.StateName(now.GetState())
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
