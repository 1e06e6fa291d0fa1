package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// RequestStop requests the stop of a READY or PAUSED sandbox and clears its deadline. A PAUSED sandbox stays PAUSED until it is stopped; a
// pause in progress is withdrawn. changed is false when a stop is in progress. Errors: Refusals SANDBOX_NOT_FOUND and
// SANDBOX_INVALID_STATE; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestStop(ctx context.Context, id, reason string) (changed bool, err error) {
	return s.changeSandbox(ctx, id, notReady(id), func(t *txn, sb *Sandbox) (bool, error) {
		switch {
		case !sandboxstate.Accepts(sb.State, agboxv1.EventType_SANDBOX_STOP_REQUESTED):
			return false, notReady(id)
		case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_STOP:
			return false, nil
		}
		t.stop(sb, reason)
		return true, nil
	})
}

// changeLive changes the intent of a live sandbox, if fn finds something to do. For a DELETED one there is nothing to do.
func (s *Store) changeLive(ctx context.Context, id string, fn func(*txn, *Sandbox) bool) (changed bool, err error) {
	return s.changeSandbox(ctx, id, nil, func(t *txn, sb *Sandbox) (bool, error) { return fn(t, sb), nil })
}

// changeSandbox changes a live sandbox by fn. Errors: those of txn.sandbox and of fn.
func (s *Store) changeSandbox(ctx context.Context, id string, gone error, fn func(*txn, *Sandbox) (bool, error)) (changed bool, err error) {
	return updated(ctx, s, func(t *txn) (bool, error) {
		sb, err := t.sandbox(id, gone)
		if err != nil || sb == nil {
			return false, err
		}
		return fn(t, sb)
	})
}

// stop requests a stop; the state stays READY or PAUSED.
func (t *txn) stop(sb *Sandbox, reason string) {
	t.change(sb, storev1.RunState_RUN_STATE_STOP, agboxv1.EventType_SANDBOX_STOP_REQUESTED, sb.State, reason)
}

// RequestIdleStop stops a sandbox with reason idle_ttl if, at the commit, it is READY and wanted to run, no drain is in progress, and it
// became idle (Sandbox.IdleSince) at least its idle_ttl before m, the time of the caller's decision. The idle_ttl is that of its spec, or
// idleFor if the spec has none. Otherwise, or when the idle_ttl is not positive, RequestIdleStop changes nothing. Errors:
// SANDBOX_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestIdleStop(ctx context.Context, id string, idleFor time.Duration, m clockjump.Moment) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		ttl := idleFor
		if own := sb.Spec.GetIdleTtl(); own != nil {
			ttl = own.AsDuration()
		}
		if ttl <= 0 || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN ||
			sb.IdleSince.IsZero() || m.CheckedAt(t.now).Age(sb.IdleSince) < ttl || t.draining() != nil {
			return false
		}
		t.stop(sb, "idle_ttl")
		return true
	})
}

// ReasonDiskLimit is the reason of a stop requested by RequestDiskStop.
const ReasonDiskLimit = "disk_limit"

// RequestDiskStop stops a sandbox with reason disk_limit, and a sentence for its users in the event, if at the commit it is wanted to
// run, and READY since the StateChangedAt whose files the caller measured: a sandbox that was resumed meanwhile has time to remove files.
// Otherwise it changes nothing. A drain is no hindrance: the disk is not only the sandbox's. Errors: SANDBOX_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) RequestDiskStop(ctx context.Context, id string, since time.Time, sentence string) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		if sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN ||
			!sb.StateChangedAt.Equal(since) {
			return false
		}
		t.intend(sb, storev1.RunState_RUN_STATE_STOP, ReasonDiskLimit)
		t.append(sb, &agboxv1.SandboxEvent{
			EventType: agboxv1.EventType_SANDBOX_STOP_REQUESTED, SandboxState: sb.State,
			Details: &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: ReasonDiskLimit, ErrorMessage: sentence}},
		})
		t.keep(sb, "")
		return true
	})
}

// RequestDelete requests the removal of a sandbox and of its agents, except those that move to another one, and releases their names.
// changed is false when the sandbox is DELETING or DELETED. Errors: SANDBOX_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestDelete(ctx context.Context, id, reason string) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool { return t.requestDelete(sb, reason, false) })
}

// RequestDeleteWithVolumes is RequestDelete, but the delete also removes the volumes of the sandbox's name, and keepAgents keeps its agents.
// For a DELETING sandbox it only adds the removal of the volumes.
func (s *Store) RequestDeleteWithVolumes(ctx context.Context, id, reason string, keepAgents bool) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		changed := t.requestDelete(sb, reason, keepAgents)
		if sb.Name == "" || sb.Desired.GetRemoveVolumes() {
			return changed
		}
		if !changed {
			t.intend(sb, storev1.RunState_RUN_STATE_DELETE, sb.Desired.GetReason()) // a pass under way may not record DELETED
		}
		sb.Desired.RemoveVolumes = true // intend has cloned it
		t.put(bucketDesired, sb.ID, sb.Desired)
		t.keep(sb, "")
		return true
	})
}

// reasonCleanup is the reason of a delete requested by RequestCleanup.
const reasonCleanup = "cleanup_ttl"

// RequestCleanup requests the removal of a sandbox, with reason cleanup_ttl, if at the commit it is FAILED, or STOPPED with a stop as
// intent, and has been for at least after before m, the time of the caller's decision. See Unswept for a sandbox that failed after its
// create. Otherwise, or when after is not positive, it changes nothing. Errors: SANDBOX_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (changed bool, err error) {
	return s.changeLive(ctx, id, func(t *txn, sb *Sandbox) bool {
		if after <= 0 || !sb.atRest() || sb.Spec.GetKeepStopped() && sb.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED || m.CheckedAt(t.now).Age(sb.StateChangedAt) < after {
			return false
		}
		if sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && sb.ErrorCode != codeCreateFailed {
			t.putInt(bucketUnswept, sb.ID, uint64(t.now.UnixNano()))
		}
		return t.requestDelete(sb, reasonCleanup, false)
	})
}

// atRest reports whether the sandbox does not run and is not wanted to.
func (sb *Sandbox) atRest() bool {
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return true
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		return sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_STOP
	}
	return false
}

// requestDelete requests the delete of the sandbox and, unless they are kept, of its agents.
func (t *txn) requestDelete(sb *Sandbox, reason string, keepAgents bool) (changed bool) {
	if sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
		return false
	}
	if sb.Name != "" && t.nameHolder(sb.Name) == sb.ID {
		t.changes.names[sb.Name] = ""
		t.delete(bucketNames, sb.Name)
	}
	t.leaveAgents(sb, keepAgents)
	t.change(sb, storev1.RunState_RUN_STATE_DELETE, agboxv1.EventType_SANDBOX_DELETE_REQUESTED,
		agboxv1.SandboxState_SANDBOX_STATE_DELETING, reason)
	return true
}

// RequestDeleteMatching requests, in one transaction, the removal of every live sandbox whose labels include all pairs of selector, and
// returns the sorted IDs of those whose delete was not requested before. It skips corrupt sandboxes. Errors: ErrInvalidArgument for an
// empty selector; ErrUnavailable.
func (s *Store) RequestDeleteMatching(ctx context.Context, selector map[string]string, reason string) (ids []string, err error) {
	if len(selector) == 0 {
		return nil, fmt.Errorf("delete by labels: empty selector: %w", errdefs.ErrInvalidArgument)
	}
	return updated(ctx, s, func(t *txn) (asked []string, err error) {
		for _, id := range slices.Sorted(slices.Values(t.liveIDs())) {
			sb := t.live(id)
			if !sb.Corrupt && hasLabels(sb.Spec.GetLabels(), selector) && t.requestDelete(sb, reason, false) {
				asked = append(asked, id)
			}
		}
		return asked, nil
	})
}
