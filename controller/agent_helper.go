package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// helper is a command that the daemon runs in a sandbox for one of its agents, once for each key: it is found again after a
// crash without a record of its own.
type helper struct {
	agentID, sandboxID string
	kind, key          string
	limit              time.Duration // from its start on; a daemon started after a crash counts from its own start
	request            execjournal.Request
	stdin              []byte // with request.Inbox
	moot               int    // the exit code by which the command says that there was nothing to do; 0: none
}

// helperEnd is the outcome of a helper.
type helperEnd int

const (
	helperRuns helperEnd = iota // or has not begun
	helperDone
	helperMoot // there was nothing to do
	helperFailed
)

// errMoot says that a helper found nothing to do.
var errMoot = errors.New("there was nothing to do")

// What helpers are for: how their exec IDs begin.
const (
	helperSave    = "_save."
	helperSummary = "_summary."
)

// isHelper reports whether an exec is a helper of an agent.
func isHelper(execID string) bool {
	return strings.HasPrefix(execID, helperSave) || strings.HasPrefix(execID, helperSummary)
}

// name gives the helper its exec ID and its nonce, which nobody in the container can know.
func (c *Controller) name(h helper) (execID, nonce string) {
	sum := sha256.Sum256([]byte(c.cfg.Store.InstanceID() + " " + h.kind + h.key))
	id := sha256.Sum256([]byte(h.key))
	return h.kind + hex.EncodeToString(id[:8]), hex.EncodeToString(sum[:16])
}

// startHelper asks for the command.
func (c *Controller) startHelper(h helper) error {
	execID, nonce := c.name(h)
	c.agentBoard.beginHelper(h.agentID, execID)
	r := h.request
	r.ExecID, r.Nonce = execID, nonce
	r.LogLimitBytes, r.LogLimitAction = c.inForce().LogLimit, execjournal.LogLimitDrop
	r.OutboxLimitBytes = c.logLimitOf(h.sandboxID, c.inForce())
	r.CancelGraceMillis = c.inForce().CancelGrace.Milliseconds()
	if r.Inbox {
		if err := c.feedHelper(h.sandboxID, execID, h.stdin); err != nil {
			return err
		}
	}
	return c.cfg.Execs.Start(h.sandboxID, r)
}

func (c *Controller) feedHelper(sandboxID, execID string, stdin []byte) error {
	if len(stdin) > 0 {
		if _, err := c.cfg.Execs.AppendInbox(sandboxID, execID, 0, stdin); err != nil {
			return err
		}
	}
	return c.cfg.Execs.CloseInbox(sandboxID, execID)
}

// lookHelper tells how far the command is. One that has taken too long is ended.
func (c *Controller) lookHelper(h helper) (helperEnd, error) {
	execID, nonce := c.name(h)
	status, err := c.cfg.Execs.Look(h.sandboxID, execID, nonce)
	if errdefs.IsNotFound(err) {
		return helperFailed, nil // its sandbox has no files any more
	}
	if err != nil {
		return helperRuns, err
	}
	switch phase := phaseOf(status); {
	case phase == plan.Ended:
		return c.judgeHelper(h, execID, status.Journal), c.cfg.Execs.Forget(h.sandboxID, execID)
	case phase == plan.Lost, phase == plan.Foreign, phase == plan.Closed:
		return helperFailed, c.cfg.Execs.Forget(h.sandboxID, execID)
	case c.agentBoard.helperTook(h.agentID, execID) >= h.limit:
		return helperFailed, c.endHelper(h)
	}
	return helperRuns, nil
}

func (c *Controller) judgeHelper(h helper, execID string, j execjournal.Journal) helperEnd {
	switch {
	case j.ExitCode == 0 && j.ErrorCode == "":
		return helperDone
	case j.ExitCode == h.moot && j.ErrorCode == "":
		return helperMoot
	}
	c.log.Warn("a command for an agent failed", "sandbox_id", h.sandboxID, "exec_id", execID, "exit_code", j.ExitCode, "reason", j.Error)
	return helperFailed
}

// endHelper sees to it that the command ends, or never begins.
func (c *Controller) endHelper(h helper) error {
	execID, nonce := c.name(h)
	c.log.Warn("a command for an agent took too long", "sandbox_id", h.sandboxID, "exec_id", execID)
	err := c.cfg.Execs.Cancel(h.sandboxID, execID, nonce)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its sandbox has no files any more, and none are to be made
	}
	if err != nil {
		return err
	}
	_, err = c.cfg.Execs.Close(h.sandboxID, execID, nonce, "it took too long")
	return err
}

// runHelper runs the command to its end. Errors: errMoot; ErrAborted for one that failed.
func (c *Controller) runHelper(ctx context.Context, h helper) error {
	if err := c.startHelper(h); err != nil {
		return err
	}
	for {
		switch end, err := c.lookHelper(h); {
		case err != nil:
			return err
		case end == helperFailed:
			return fmt.Errorf("the command failed, or took longer than %s: %w", h.limit, errdefs.ErrAborted)
		case end == helperMoot:
			return errMoot
		case end == helperDone:
			return nil
		}
		if wait.For(ctx, drainLook) != nil {
			return errors.Join(context.Cause(ctx), c.endHelper(h))
		}
	}
}

// saves is the save command of an agent, once for an occasion.
func (c *Controller) saves(a store.Agent, occasion string, limit time.Duration) helper {
	command, moot := a.Spec.GetSaveCommand(), 0
	if len(command) == 0 {
		command, moot = gitSave, exitNoWorkTree
	}
	return helper{
		agentID: a.ID, sandboxID: a.SandboxID, kind: helperSave, key: agentExec(a) + " " + occasion, limit: limit, moot: moot,
		request: execjournal.Request{Command: command, Cwd: a.Spec.GetWorkingDir(), Env: agentEnv(a, a.Status.GetIncarnation())},
	}
}
