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

// helper is a command that the daemon runs in a sandbox for one of its agents, once per key. A later daemon finds it by that key, without a
// record of its own.
type helper struct {
	agentID, sandboxID string
	purpose            execid.Purpose
	key                string
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

// name returns the helper's exec ID and its nonce, which a container cannot know: the store's UUID is not visible there.
func (h helper) name(instanceID string) (execID, nonce string) {
	sum := sha256.Sum256([]byte(instanceID + " " + string(h.purpose) + h.key))
	return execid.ForHelper(h.purpose, h.key), hex.EncodeToString(sum[:16])
}

// settledHelper is a helper whose outcome is known and whose files need cleanup.
type settledHelper struct {
	helper
	// late: it has neither ended nor been refused, and its time limit has passed.
	late bool
	// failed is the journal of a command that failed; nil: it did not fail, or left none.
	failed *execjournal.Journal
}

// helper returns a helper command of the newest incarnation, which runs once per incarnation.
func (v *Observation) helper(purpose execid.Purpose, command []string, limit time.Duration) helper {
	return helper{
		agentID: v.a.ID, sandboxID: v.a.SandboxID, purpose: purpose, key: v.ExecID, limit: limit,
		request: execjournal.Request{Command: command, Cwd: v.a.Spec.GetWorkingDir(), Env: environment(v.a, v.a.Status.GetIncarnation())},
	}
}

// observeEnd reads the state of a helper, and leaves the settling to the pass.
func (v *Observation) observeEnd(h helper) (helperEnd, error) {
	execID, nonce := h.name(v.o.store.InstanceID())
	status, err := v.o.files.Status(h.sandboxID, execID, nonce)
	if errdefs.IsNotFound(err) {
		return helperNowhere, nil
	}
	if err != nil {
		return helperRuns, err
	}
	end, settled, waited := helperFailed, settledHelper{helper: h}, v.memory().waited(execID)
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
	execID, _ := s.name(r.cfg.Store.InstanceID())
	if j := s.failed; j != nil {
		r.cfg.Logger.Warn("a command for an agent failed", "sandbox_id", s.sandboxID, "exec_id", execID, "exit_code", j.ExitCode, "reason", j.Error)
	}
	return r.cfg.Files.Forget(s.sandboxID, execID)
}

// startHelper requests the command. It may be repeated.
func (r *Reconciler) startHelper(h helper) error {
	execID, nonce := h.name(r.cfg.Store.InstanceID())
	r.scratch.Change(h.agentID, func(s *memory) {
		if s.helpers == nil {
			s.helpers = map[string]time.Time{}
		}
		if s.helpers[execID].IsZero() {
			s.helpers[execID] = time.Now()
		}
	})
	limits, q := r.cfg.Limits(h.sandboxID), h.request
	q.ExecID, q.Nonce = execID, nonce
	q.LogLimitBytes, q.LogLimitAction = limits.LogBytes, execjournal.LogLimitDrop
	q.OutboxLimitBytes = limits.OutboxBytes
	q.CancelGraceMillis = limits.CancelGrace.Milliseconds()
	if q.Inbox {
		if err := r.feedHelper(h.sandboxID, execID, h.stdin); err != nil {
			return err
		}
	}
	return r.cfg.Files.Start(h.sandboxID, q)
}

func (r *Reconciler) feedHelper(sandboxID, execID string, stdin []byte) error {
	if len(stdin) > 0 {
		if _, err := r.cfg.Files.AppendInbox(sandboxID, execID, 0, stdin); err != nil {
			return err
		}
	}
	return r.cfg.Files.CloseInbox(sandboxID, execID)
}

// endHelper cancels a command, and closes its journal so that it never starts if it has not.
func (r *Reconciler) endHelper(h helper) error {
	execID, nonce := h.name(r.cfg.Store.InstanceID())
	r.cfg.Logger.Warn("a command for an agent took too long", "sandbox_id", h.sandboxID, "exec_id", execID)
	err := r.cfg.Files.Cancel(h.sandboxID, execID, nonce)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its sandbox no longer has files, and none must be created
	}
	if err != nil {
		return err
	}
	_, err = r.cfg.Files.Close(h.sandboxID, execID, nonce, "it took too long")
	return err
}
