package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/agbox/agbox/internal/wait"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// requestCancel retries a cancel until it is recorded, or prints the command for it.
func (a *app) requestCancel(execID string) {
	ctx, cancel := context.WithTimeout(context.Background(), acceptPatience)
	defer cancel()
	for {
		err := a.conn().CancelExec(ctx, execID)
		if err == nil || client.IsNotFound(err) || client.IsFailedPrecondition(err) {
			return
		}
		if !client.IsUnavailable(err) || wait.For(ctx, retryEvery) != nil {
			a.complain(fmt.Errorf("cancel exec %s: %w; it may still run, \"agbox cancel %s\" ends it", execID, err, execID))
			return
		}
	}
}

// cancelAttached cancels the exec and gives up once its end is overdue; at once if its sandbox is frozen, because then it can't end.
func (a *app) cancelAttached(execID string, giveUp func()) {
	a.requestCancel(execID)
	patience := cancelPatience
	if a.frozenWith(execID) != "" {
		patience = 0
	}
	time.AfterFunc(patience, giveUp)
}

// frozenWith returns how to thaw the sandbox of an exec; empty if the sandbox is not frozen or its state is unknown.
func (a *app) frozenWith(execID string) string {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	e, err := a.conn().GetExec(ctx, execID)
	if err != nil || e.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
		return ""
	}
	sb, err := a.conn().GetSandbox(ctx, e.GetSandboxId())
	if err != nil || sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_PAUSED || sb.GetDemotedAt() != nil || sb.GetDesiredState() != "" {
		return ""
	}
	return fmt.Sprintf("sandbox %s is PAUSED; \"agbox resume %s\" thaws it", nameOrID(sb), nameOrID(sb))
}

// notEnded says that a cancelled exec has not ended yet, and why.
func notEnded(execID, frozen string) error {
	if frozen != "" {
		return fmt.Errorf("exec %s is cancelled, but has not ended: %s", execID, frozen)
	}
	return fmt.Errorf("exec %s has not ended yet; \"agbox cancel --wait %s\" waits for it", execID, execID)
}
