package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/internal/termsafe"
)

// again reads a sandbox again, because its state may have changed before the refusal.
func (a *app) again(ctx context.Context, sb *agboxv1.SandboxHandle) *agboxv1.SandboxHandle {
	if now, err := a.conn().GetSandbox(ctx, sb.GetSandboxId()); err == nil {
		return now
	}
	return sb
}

// sandboxRefused explains a refusal for the wrong state by the state that the sandbox has now.
func (a *app) sandboxRefused(ctx context.Context, verb string, sb *agboxv1.SandboxHandle, err error) error {
	if client.IsFailedPrecondition(err) && client.Reason(err) != "ENGINE_CANNOT_FREEZE" {
		return withState(verb, a.again(ctx, sb), err)
	}
	return err
}

// withState adds the present state and the next step to a refusal for the wrong state.
func withState(verb string, sb *agboxv1.SandboxHandle, err error) error {
	text := fmt.Sprintf("cannot %s sandbox %s: it is %s", verb, nameOrID(sb), enum.Word(sb.GetState()))
	if sb.GetDesiredState() != "" {
		return errors.New(text + " and being " + sb.GetDesiredState() + afterwards(sb))
	}
	if why := client.ResumeRefusal(err); why != "" {
		return errors.New(text + ": " + termsafe.Line(why))
	}
	return errors.New(text + wayOut(sb))
}

// execRefused explains a refusal for the wrong state.
func (a *app) execRefused(ctx context.Context, sb *agboxv1.SandboxHandle, err error) error {
	if !client.IsFailedPrecondition(err) {
		return err
	}
	sb = a.again(ctx, sb)
	err = withState("run a command in", sb, err)
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.GetDesiredState() == "" {
		err = fmt.Errorf("%w; with auto_resume in its spec a command resumes it", err)
	}
	return err
}

// wayOut returns the command that helps in the sandbox's state.
func wayOut(sb *agboxv1.SandboxHandle) string {
	name := nameOrID(sb)
	switch state := sb.GetState(); {
	case state == agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return fmt.Sprintf("; \"agbox describe %s\" shows why and what \"agbox resume\" would do", name)
	case state == agboxv1.SandboxState_SANDBOX_STATE_PENDING:
		return "; try again when it is READY"
	case state == agboxv1.SandboxState_SANDBOX_STATE_READY:
		return " now; try again"
	case sandboxstate.IsResumable(state):
		return "; " + resumeHint(sb)
	}
	return ""
}

// afterwards returns the command that helps while a request is being carried out.
func afterwards(sb *agboxv1.SandboxHandle) string {
	switch sb.GetDesiredState() {
	case wantPaused:
		return fmt.Sprintf("; \"agbox resume %s\" cancels that", nameOrID(sb))
	case wantStopped:
		return fmt.Sprintf("; \"agbox resume %s\" starts it when it is STOPPED", nameOrID(sb))
	}
	return ""
}

// resumeHint is the command that starts a STOPPED or PAUSED sandbox, and its effect.
func resumeHint(sb *agboxv1.SandboxHandle) string {
	effect := "starts it"
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.GetDemotedAt() == nil {
		effect = "thaws it"
	}
	return fmt.Sprintf("\"agbox resume %s\" %s", nameOrID(sb), effect)
}

// Values of SandboxHandle.desired_state.
const (
	wantStopped = "stopped"
	wantPaused  = "paused"
	wantDeleted = "deleted"
)

// agentRefused adds the present state and the next step to a refusal for the wrong state.
func (a *app) agentRefused(ctx context.Context, verb string, one *agboxv1.AgentHandle, err error) error {
	if !client.IsFailedPrecondition(err) {
		return err
	}
	if now, again := a.conn().GetAgent(ctx, one.GetAgentId()); again == nil {
		one = now
	}
	text := fmt.Sprintf("cannot %s agent %s: it is %s", verb, agentName(one), agentState(one))
	switch {
	case one.GetDesiredState() == wantDeleted:
		return errors.New(text + " and being deleted")
	case client.Reason(err) == "AGENT_INVALID_STATE" && verb == "interrupt":
		return errors.New(text + "; only one that is BUSY has a turn to interrupt")
	}
	return fmt.Errorf("%s: %w; see \"agbox agent describe %s\"", text, err, agentName(one))
}
