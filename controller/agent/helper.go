package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// helper is a command that the daemon runs in a sandbox for one of its agents, once per incarnation. A later daemon computes the same exec
// ID, so it finds the command without a record of its own.
type helper struct {
	agentID, sandboxID string
	limit              time.Duration // since this daemon started to wait for it
	request            execjournal.Request
	stdin              []byte // with request.Inbox
	moot               int    // the exit code that means that there was nothing to do; 0: none
}

// helperEnd is the outcome of a helper.
type helperEnd int

const (
	helperAbsent helperEnd = iota // it has not started, and this daemon has not requested it
	helperRuns                    // or has not started
	helperDone
	helperMoot // there was nothing to do
	helperFailed
	helperNowhere // its sandbox no longer has files
)

// settledHelper is a helper whose outcome is known and whose files need cleanup.
type settledHelper struct {
	helper
	// late: it has neither ended nor been refused, and its time limit has passed or its container has stopped.
	late bool
	// failed is the journal of a command that failed; nil: it did not fail, or left none.
	failed *execjournal.Journal
}

// helper returns a helper command of the newest incarnation. A container cannot know its nonce: the store's UUID is not visible there.
func (v *Observation) helper(purpose execid.Purpose, command []string, limit time.Duration) helper {
	sum := sha256.Sum256([]byte(v.o.store.InstanceID() + " " + string(purpose) + v.ExecID))
	return helper{
		agentID: v.a.ID, sandboxID: v.a.SandboxID, limit: limit,
		request: execjournal.Request{
			ExecID: execid.ForHelper(purpose, v.ExecID), Nonce: hex.EncodeToString(sum[:16]),
			Command: command, Cwd: v.a.Spec.GetWorkingDir(), Env: environment(v.a, v.a.Status.GetIncarnation()),
		},
	}
}

// observeEnd reads the state of a helper, and leaves the settling to the pass.
func (v *Observation) observeEnd(h helper) (helperEnd, error) {
	status, err := v.o.files.Status(h.sandboxID, h.request.ExecID, h.request.Nonce)
	if errdefs.IsNotFound(err) {
		return helperNowhere, nil
	}
	if err != nil {
		return helperRuns, err
	}
	end, settled, waited := helperFailed, settledHelper{helper: h}, v.memory().waited(h.request.ExecID)
	switch j := status.Journal; {
	case status.Phase == execphase.Ended && j.ExitCode == 0 && j.ErrorCode == "":
		end = helperDone
	case status.Phase == execphase.Ended && j.ExitCode == h.moot && j.ErrorCode == "":
		end = helperMoot
	case status.Phase == execphase.Ended:
		settled.failed = &j
	case status.Phase == execphase.Lost, status.Phase == execphase.Foreign, status.Phase == execphase.Closed:
	case waited >= h.limit:
		settled.late = true
	case status.Phase == execphase.NotStarted && waited == 0:
		return helperAbsent, nil
	default:
		return helperRuns, nil
	}
	v.settled = append(v.settled, settled)
	return end, nil
}

// settle removes the request of an ended command, and ends a late one.
func (r *Reconciler) settle(s settledHelper) error {
	if s.late {
		return r.endHelper(s.helper)
	}
	if j := s.failed; j != nil {
		r.cfg.Logger.Warn("a command for an agent failed", "sandbox_id", s.sandboxID, "exec_id", s.request.ExecID,
			"exit_code", j.ExitCode, "reason", j.Error)
	}
	return r.cfg.Files.Forget(s.sandboxID, s.request.ExecID)
}

// startHelper requests the command. It may be repeated.
func (r *Reconciler) startHelper(h helper) error {
	limits, q := r.cfg.Limits(h.sandboxID), h.request
	r.scratch.Change(h.agentID, func(s *memory) {
		if s.helpers == nil {
			s.helpers = map[string]time.Time{}
		}
		if s.helpers[q.ExecID].IsZero() {
			s.helpers[q.ExecID] = time.Now()
		}
	})
	q.LogLimitBytes, q.LogLimitAction = limits.AgentLogBytes, execjournal.LogLimitDrop
	q.OutboxLimitBytes = limits.LogBytes
	q.CancelGraceMillis = limits.CancelGrace.Milliseconds()
	if len(h.stdin) > 0 {
		if _, err := r.cfg.Files.AppendInbox(h.sandboxID, q.ExecID, 0, h.stdin); err != nil {
			return err
		}
	}
	if q.Inbox {
		if err := r.cfg.Files.CloseInbox(h.sandboxID, q.ExecID); err != nil {
			return err
		}
	}
	return r.cfg.Files.Start(h.sandboxID, q)
}

// endHelper cancels a command, and closes its journal so that it never starts if it has not.
func (r *Reconciler) endHelper(h helper) error {
	q := h.request
	r.cfg.Logger.Warn("a command for an agent is given up", "sandbox_id", h.sandboxID, "exec_id", q.ExecID)
	err := r.cfg.Files.Cancel(h.sandboxID, q.ExecID, q.Nonce)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its sandbox no longer has files, and none must be created
	}
	if err != nil {
		return err
	}
	_, err = r.cfg.Files.Close(h.sandboxID, q.ExecID, q.Nonce, "it took too long, or its container stopped")
	return err
}
