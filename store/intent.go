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

// RequestStop asks a READY or PAUSED sandbox to stop; its deadline is forgotten. A PAUSED one stays so until it is stopped, and
// a pause that is under way ends. changed is false when a stop is under way already. Errors: Refusals SANDBOX_NOT_FOUND and
// SANDBOX_INVALID_STATE; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestStop(ctx context.Context, id, reason string) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		sb, err := t.sandbox(id, notReady(id))
		switch {
		case err != nil:
			return false, err
		case !sandboxstate.Accepts(sb.State, agboxv1.EventType_SANDBOX_STOP_REQUESTED):
			return false, notReady(id)
		case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_STOP:
			return false, nil
		}
		return true, t.stop(sb, reason)
	})
}

// change runs an accept that may find nothing to do.
func (s *Store) change(ctx context.Context, fn func(*txn) (bool, error)) (changed bool, err error) {
	var did bool
	err = s.update(ctx, func(t *txn) error {
		var err error
		did, err = fn(t)
		return err
	})
	return did && err == nil, err
}

// stop leaves the state as it is, READY or PAUSED.
func (t *txn) stop(sb *Sandbox, reason string) error {
	return t.change(sb, storev1.RunState_RUN_STATE_STOP, agboxv1.EventType_SANDBOX_STOP_REQUESTED, sb.State, reason)
}

// RequestIdleStop stops a sandbox with reason idle_ttl if, at the time of the commit, it is READY and wanted to run, is idle as
// Sandbox.IdleSince says, nothing drains, and it became idle at least its idle_ttl before m, the moment of the caller's decision:
// that of its spec at that time, or idleFor where it has none. Otherwise, or when that is not positive, it changes nothing.
// Errors: SANDBOX_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestIdleStop(ctx context.Context, id string, idleFor time.Duration, m clockjump.Moment) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		sb, err := t.sandbox(id, nil)
		if err != nil || sb == nil {
			return false, err
		}
		ttl := idleFor
		if own := sb.Spec.GetIdleTtl(); own != nil {
			ttl = own.AsDuration()
		}
		if ttl <= 0 || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN ||
			sb.IdleSince.IsZero() || m.CheckedAt(t.now).Age(sb.IdleSince) < ttl || t.draining() != nil {
			return false, nil
		}
		return true, t.stop(sb, "idle_ttl")
	})
}

// RequestDelete asks for the removal of a sandbox and of its agents, but for those that move to another one, and lets go of their
// names. changed is false when it is DELETING or DELETED. Errors: SANDBOX_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestDelete(ctx context.Context, id, reason string) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		sb, err := t.sandbox(id, nil)
		if err != nil || sb == nil {
			return false, err
		}
		return t.requestDelete(sb, reason)
	})
}

// reasonCleanup is the reason of a delete that nobody but the clock asked for.
const reasonCleanup = "cleanup_ttl"

// RequestCleanup asks for the removal of a sandbox, with reason cleanup_ttl, if at the time of the commit it is STOPPED
// and wanted so, or FAILED, and has been since at least after before m, the moment of the caller's decision. See Unswept for one that
// failed after its create. Otherwise, or when after is not positive, it changes nothing. Errors: SANDBOX_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) RequestCleanup(ctx context.Context, id string, after time.Duration, m clockjump.Moment) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		sb, err := t.sandbox(id, nil)
		if err != nil || sb == nil {
			return false, err
		}
		if after <= 0 || !sb.atRest() || m.CheckedAt(t.now).Age(sb.StateChangedAt) < after {
			return false, nil
		}
		if sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && sb.ErrorCode != codeCreateFailed {
			if err := t.putInt(bucketUnswept, sb.ID, uint64(t.now.UnixNano())); err != nil {
				return false, err
			}
		}
		return t.requestDelete(sb, reasonCleanup)
	})
}

// atRest reports whether nothing runs and nothing is wanted to.
func (sb *Sandbox) atRest() bool {
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return true
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		return sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_STOP
	}
	return false
}

// requestDelete takes the agents along.
func (t *txn) requestDelete(sb *Sandbox, reason string) (changed bool, err error) {
	return t.requestDeleteWith(sb, reason, t.deleteAgentsOf)
}

func (t *txn) requestDeleteWith(sb *Sandbox, reason string, agents func(*Sandbox) error) (changed bool, err error) {
	if sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
		return false, nil
	}
	if sb.Name != "" && t.nameHolder(sb.Name) == sb.ID {
		t.changes.names[sb.Name] = ""
		if err := t.delete(bucketNames, sb.Name); err != nil {
			return false, err
		}
	}
	if err := agents(sb); err != nil {
		return false, err
	}
	return true, t.change(sb, storev1.RunState_RUN_STATE_DELETE, agboxv1.EventType_SANDBOX_DELETE_REQUESTED,
		agboxv1.SandboxState_SANDBOX_STATE_DELETING, reason)
}

// RequestDeleteMatching asks, in one transaction, for the removal of every live sandbox whose labels have all pairs of
// selector, and returns the sorted IDs of those that nobody had asked to delete before. Sandboxes whose record does
// not decode are left out. Errors: ErrInvalidArgument for an empty selector; ErrUnavailable.
func (s *Store) RequestDeleteMatching(ctx context.Context, selector map[string]string, reason string) (ids []string, err error) {
	if len(selector) == 0 {
		return nil, fmt.Errorf("delete by labels: empty selector: %w", errdefs.ErrInvalidArgument)
	}
	var asked []string
	err = s.update(ctx, func(t *txn) error {
		for _, id := range slices.Sorted(slices.Values(t.liveIDs())) {
			sb := t.live(id)
			if sb.Corrupt || !sb.matches(selector) {
				continue
			}
			changed, err := t.requestDelete(sb, reason)
			if err != nil {
				return err
			}
			if changed {
				asked = append(asked, id)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return asked, nil
}
