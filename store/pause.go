package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
)

// reasonDemoted is the reason of the SANDBOX_PAUSED event recorded when a demoted sandbox is stopped.
const reasonDemoted = "demoted"

// reasonPauseCleanup is the reason of a delete requested by RequestPauseCleanup.
const reasonPauseCleanup = "stopped_gc"

// RequestPause requests that a READY sandbox is frozen. changed is false when a pause is in progress. Errors: Refusals SANDBOX_NOT_FOUND,
// SANDBOX_ALREADY_PAUSED for a PAUSED sandbox and SANDBOX_INVALID_STATE; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestPause(ctx context.Context, id, reason string) (changed bool, err error) {
	return s.changeSandbox(ctx, id, notReady(id), func(t *txn, sb *Sandbox) (bool, error) {
		switch {
		case sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
			return false, alreadyPaused(id)
		case sb.isPausing():
			return false, nil
		case sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN:
			return false, notReady(id)
		}
		t.pause(sb, reason)
		return true, nil
	})
}

func (t *txn) pause(sb *Sandbox, reason string) {
	t.change(sb, storev1.RunState_RUN_STATE_PAUSE, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED,
		agboxv1.SandboxState_SANDBOX_STATE_READY, reason)
}

// isPausing reports whether sb is READY with a pause in progress.
func (sb *Sandbox) isPausing() bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_PAUSE
}

// isPaused reports whether sb is PAUSED and no stop or delete was requested.
func (sb *Sandbox) isPaused() bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_PAUSE
}

// isResuming reports whether a resume of sb is in progress.
func (sb *Sandbox) isResuming() bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_RESUME
}

// RequestResume requests that a STOPPED or PAUSED sandbox runs again, and withdraws a pause in progress. The progress of a sandbox that is
// or may be partly frozen is kept and marked as frozen; otherwise only the completed hooks are kept, and whether a demotion was stopping
// the sandbox. changed is false when a resume is in progress. Errors: Refusals SANDBOX_NOT_FOUND and SANDBOX_INVALID_STATE; ErrDataLoss;
// ErrUnavailable.
func (s *Store) RequestResume(ctx context.Context, id string) (changed bool, err error) {
	return s.requestResume(ctx, id, false)
}

// codeCreateFailed is the error code of a sandbox whose containers were removed when it failed.
const codeCreateFailed = "SANDBOX_CREATE_FAILED"

// codeContainerMissing is the error code of a sandbox that failed without any observed container that could be stopped.
const codeContainerMissing = "CONTAINER_MISSING"

// RequestRecover is RequestResume for a resume that may recreate the network and reconnect the containers; it also accepts a FAILED
// sandbox whose create did not fail. Errors: as RequestResume.
func (s *Store) RequestRecover(ctx context.Context, id string) (changed bool, err error) {
	return s.requestResume(ctx, id, true)
}

func (s *Store) requestResume(ctx context.Context, id string, repairs bool) (changed bool, err error) {
	return s.changeSandbox(ctx, id, notStopped(id), func(t *txn, sb *Sandbox) (bool, error) {
		switch {
		case sb.isResuming() && (!repairs || sb.Desired.GetRecover()):
			return false, nil
		case repairs && sb.isCreateWithoutPrimary():
			return false, createUnfinished(id)
		case !sb.isResumable(repairs):
			return false, notStopped(id)
		}
		t.resume(sb, repairs)
		return true, nil
	})
}

// isCreateWithoutPrimary reports that the create failed because the engine denied the primary. The create continues when the engine shows it
// again; a resume would skip the rest of the create, such as its hooks.
func (sb *Sandbox) isCreateWithoutPrimary() bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE &&
		sb.Progress.GetMissingFrom() == agboxv1.SandboxState_SANDBOX_STATE_PENDING
}

// isResumable reports whether RequestResume or, with repairs, RequestRecover accepts the sandbox.
func (sb *Sandbox) isResumable(repairs bool) bool {
	run := sb.Desired.GetRunState()
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return repairs && run != storev1.RunState_RUN_STATE_DELETE && sb.ErrorCode != codeCreateFailed
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		return run == storev1.RunState_RUN_STATE_STOP
	}
	return sb.isPaused() || sb.isPausing()
}

// resume records a resume. A sandbox that failed while a pause was wanted may be frozen; the pass thaws it by the engine's state.
// repairs: the network may be recreated.
func (t *txn) resume(sb *Sandbox, repairs bool) {
	t.progress(sb, resumed(sb))
	sb.Desired = proto.CloneOf(sb.Desired)
	sb.Desired.Attempt, sb.Desired.Recover = storev1.Attempt_ATTEMPT_RESUME, repairs
	t.change(sb, storev1.RunState_RUN_STATE_RUN, agboxv1.EventType_SANDBOX_ACCEPTED, agboxv1.SandboxState_SANDBOX_STATE_PENDING, "")
}

// resumed returns the initial progress of a resume of sb. While a pause is in progress, any of the containers may be frozen.
func resumed(sb *Sandbox) *storev1.Progress {
	demoted := sb.Desired.GetDemotedAt() != 0
	if !demoted && (sb.isPausing() || sb.isPaused() && sb.Progress.GetFrozen()) {
		p := proto.CloneOf(sb.Progress)
		p.Frozen = true
		return p
	}
	stopping := demoted && sb.Progress.GetStopping()
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		// The failure may still be stopping containers, and the engine completes a stop that no caller waits for.
		stopping = !sb.Progress.GetMissing() || sb.ErrorCode != codeContainerMissing
	}
	return &storev1.Progress{HooksDone: sb.Progress.GetHooksDone(), Stopping: stopping}
}

// Demote records that a sandbox with a pause as intent should be stopped instead of frozen, and cancels its active execs. It appends no
// event. changed is false when that was recorded before, or the intent is no pause. Errors: SANDBOX_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) Demote(ctx context.Context, id string) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		if !sb.isPaused() && !sb.isPausing() || sb.Desired.GetDemotedAt() != 0 {
			return false
		}
		t.demote(sb)
		return true
	})
}

func (t *txn) demote(sb *Sandbox) {
	sb.Desired = proto.CloneOf(sb.Desired)
	sb.Desired.Generation++
	sb.Desired.RequestedAt = t.now.UnixNano()
	sb.Desired.DemotedAt = sb.Desired.GetRequestedAt()
	t.put(bucketDesired, sb.ID, sb.Desired)
	p := proto.CloneOf(sb.Progress)
	p.Frozen, p.Stopping = false, true
	t.progress(sb, p)
	t.keep(sb, "")
	for _, execID := range sb.ActiveExecs {
		_, _ = t.cancel(sb.ID, execID) // an unreadable exec must not keep the sandbox in memory
	}
}

// RequestPauseCleanup requests the removal of a sandbox, with reason stopped_gc, if at the commit it is PAUSED with no other intent, and
// was demoted at least after before m, the time of the caller's decision. Otherwise, or when after is not positive, it changes nothing.
// Errors: SANDBOX_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestPauseCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		demoted := sb.Desired.GetDemotedAt()
		if after <= 0 || demoted == 0 || sb.Spec.GetKeepStopped() || !sb.isPaused() || m.CheckedAt(t.now).Age(time.Unix(0, demoted)) < after {
			return false
		}
		return t.requestDelete(sb, reasonPauseCleanup, false)
	})
}

// FrozenIDs returns the IDs of the PAUSED sandboxes with a pause as intent and without a demotion, longest paused first. From memory.
func (s *Store) FrozenIDs() []string {
	var frozen []*Sandbox
	for _, sb := range all(&s.index, s.index.sandboxes) {
		if !sb.Corrupt && sb.isPaused() && sb.Desired.GetDemotedAt() == 0 {
			frozen = append(frozen, sb)
		}
	}
	slices.SortFunc(frozen, func(a, b *Sandbox) int {
		return cmp.Or(a.StateChangedAt.Compare(b.StateChangedAt), cmp.Compare(a.ID, b.ID))
	})
	ids := make([]string, len(frozen))
	for i, sb := range frozen {
		ids[i] = sb.ID
	}
	return ids
}
