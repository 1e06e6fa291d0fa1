package server

import (
	"cmp"
	"context"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/store"
)

type lifetimeStore interface {
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	RequestPause(ctx context.Context, id, reason string) (changed bool, err error)
	RequestResume(ctx context.Context, id string) (changed bool, err error)
	RequestRecover(ctx context.Context, id string) (changed bool, err error)
	SetTimeout(ctx context.Context, id string, t store.Timeout) (deadline time.Time, changed bool, err error)
}

// lifetimes handles the calls that pause, resume and prolong sandboxes.
type lifetimes struct {
	*handles
	store   lifetimeStore
	explain func(ctx context.Context, sandboxID string) (*agboxv1.ExplainResponse, error)
	// freezeRefusal says why the engine can't freeze containers; empty: it can.
	freezeRefusal func() string
	now           func() time.Time
}

// PauseSandbox implements agbox.v1.SandboxService. An engine that can't freeze containers would have to stop them, which ends their processes.
func (s *lifetimes) PauseSandbox(ctx context.Context, req *agboxv1.PauseSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	if why := s.freezeRefusal(); why != "" {
		sb, err := s.store.Sandbox(ctx, req.GetSandboxId())
		if err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN {
			return nil, store.RefuseFreeze(sb.ID, why, "Stop it instead: its files stay, its processes end")
		}
	}
	return requestOf(ctx, "sandbox_id", req.GetSandboxId(), because(s.store.RequestPause, reasonPause))
}

// ResumeSandbox implements agbox.v1.SandboxService. If another client's resume has completed between the caller's
// read and its request, the request succeeds, so that of several concurrent resumes none is refused.
func (s *lifetimes) ResumeSandbox(ctx context.Context, req *agboxv1.ResumeSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return nil, err
	}
	was, err := s.store.Sandbox(ctx, req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if req.GetRecover() {
		err = s.recoverSandbox(ctx, was)
	} else {
		_, err = s.store.RequestResume(ctx, was.ID)
	}
	if errdefs.IsFailedPrecondition(err) && resumable(was) {
		now, again := s.store.Sandbox(ctx, was.ID)
		if again == nil && runs(now) {
			err = nil
		}
	}
	return accepted(true, err)
}

// recoverLook bounds the observation of the engine before a recover is accepted, in case the engine hangs.
const recoverLook = 2 * time.Second

// recoverSandbox refuses a sandbox with a missing container. If the engine does not answer, it accepts the request, and the reconciler
// checks it.
func (s *lifetimes) recoverSandbox(ctx context.Context, was store.Sandbox) error {
	if was.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		look, cancel := context.WithTimeout(ctx, recoverLook)
		defer cancel()
		if e, err := s.explain(look, was.ID); err == nil && e.GetResumeRefusal() != "" {
			return store.RefuseResume(was.ID, e.GetResumeRefusal())
		}
	}
	_, err := s.store.RequestRecover(ctx, was.ID)
	return err
}

// resumable reports whether a resume of sb has something to do, or is under way.
func resumable(sb store.Sandbox) bool {
	switch sb.Desired.GetRunState() {
	case storev1.RunState_RUN_STATE_STOP:
		return sb.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	case storev1.RunState_RUN_STATE_PAUSE:
		return true
	case storev1.RunState_RUN_STATE_RUN:
		return sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_RESUME
	}
	return false
}

func runs(sb store.Sandbox) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN
}

// SetSandboxTimeout implements agbox.v1.SandboxService.
func (s *lifetimes) SetSandboxTimeout(ctx context.Context, req *agboxv1.SetSandboxTimeoutRequest) (*agboxv1.SetSandboxTimeoutResponse, error) {
	if err := validate.SetTimeout(req, s.now()).Err(); err != nil {
		return nil, err
	}
	t := store.Timeout{After: req.GetTimeout().AsDuration(), OnlyExtend: req.GetOnlyExtend()}
	if at := req.GetDeadlineAt(); at != nil {
		t.At = at.AsTime()
	}
	if t.OnlyExtend {
		sb, err := s.store.Sandbox(ctx, req.GetSandboxId())
		if err != nil {
			return nil, err
		}
		t.Begins = s.timeout(sb)
	}
	deadline, changed, err := s.store.SetTimeout(ctx, req.GetSandboxId(), t)
	return &agboxv1.SetSandboxTimeoutResponse{DeadlineAt: timestamp(deadline), Changed: changed}, err
}

// showLifetime fills in when and how the sandbox ends, and whether it passed while PAUSED.
func (s *handles) showLifetime(h *agboxv1.SandboxHandle, sb store.Sandbox) {
	timeout := s.timeout(sb)
	if timeout > 0 {
		h.Timeout = durationpb.New(timeout)
	}
	if sandboxstate.IsUp(sb.State) {
		h.DeadlineAt = nanoseconds(sb.Desired.GetDeadlineAt())
	}
	if timeout > 0 || h.DeadlineAt != nil {
		h.OnTimeout = cmp.Or(sb.Spec.GetOnTimeout(), "stop")
	}
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		h.DemotedAt = nanoseconds(sb.Desired.GetDemotedAt())
	}
	h.Rehydrated = sb.Desired.GetRehydrated()
}

// timeout is how long a sandbox may run after READY; 0: forever.
func (s *handles) timeout(sb store.Sandbox) time.Duration {
	if own := sb.Spec.GetTimeout(); own != nil {
		return own.AsDuration()
	}
	return s.defaultTimeout()
}
