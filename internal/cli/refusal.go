package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// again reads a sandbox once more: what was read before a refusal may be what the refusal says is no longer so.
func again(ctx context.Context, c *client.Client, sb *agboxv1.SandboxHandle) *agboxv1.SandboxHandle {
	if now, err := c.GetSandbox(ctx, sb.GetSandboxId()); err == nil {
		return now
	}
	return sb
}

// explain adds the present state and the next step to a refusal for the wrong state.
func explain(verb string, sb *agboxv1.SandboxHandle, err error) error {
	if sb == nil || !client.IsFailedPrecondition(err) {
		return err
	}
	text := fmt.Sprintf("cannot %s sandbox %s: it is %s", verb, nameOrID(sb), enum.Word(sb.GetState()))
	if sb.GetDesiredState() != "" {
		return errors.New(text + " and being " + sb.GetDesiredState() + afterwards(sb))
	}
	if why := client.ResumeRefusal(err); why != "" {
		return errors.New(text + ": " + oneLine(why))
	}
	return errors.New(text + wayOut(sb))
}

// execRefused explains a refusal for the wrong state.
func (a *app) execRefused(ctx context.Context, sb *agboxv1.SandboxHandle, err error) error {
	if !client.IsFailedPrecondition(err) {
		return err
	}
	sb = again(ctx, a.conn, sb)
	err = explain("run a command in", sb, err)
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.GetDesiredState() == "" {
		err = fmt.Errorf("%w; with auto_resume in its spec a command does that", err)
	}
	return err
}

// wayOut says what can be done about the state that a sandbox is in.
func wayOut(sb *agboxv1.SandboxHandle) string {
	name := nameOrID(sb)
	switch state := sb.GetState(); {
	case state == agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return fmt.Sprintf("; \"agbox describe %s\" says why and what \"agbox resume\" would do", name)
	case state == agboxv1.SandboxState_SANDBOX_STATE_PENDING:
		return "; try again when it is READY"
	case state == agboxv1.SandboxState_SANDBOX_STATE_READY:
		return " now; try again"
	case sandboxstate.Rests(state):
		return "; " + resumeHint(sb)
	}
	return ""
}

// afterwards says what can be done about what is under way.
func afterwards(sb *agboxv1.SandboxHandle) string {
	switch sb.GetDesiredState() {
	case wantPaused:
		return fmt.Sprintf("; \"agbox resume %s\" turns that back", nameOrID(sb))
	case wantStopped:
		return fmt.Sprintf("; \"agbox resume %s\" starts it when it is STOPPED", nameOrID(sb))
	}
	return ""
}

// resumeHint is what brings a STOPPED or PAUSED sandbox back.
func resumeHint(sb *agboxv1.SandboxHandle) string {
	effect := "starts it"
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.GetDemotedAt() == nil {
		effect = "lets it go on"
	}
	return fmt.Sprintf("\"agbox resume %s\" %s", nameOrID(sb), effect)
}

// Values of SandboxHandle.desired_state: a request was accepted that the state does not show yet.
const (
	wantStopped = "stopped"
	wantPaused  = "paused"
	wantDeleted = "deleted"
)
