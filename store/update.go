package store

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SpecChange returns the next spec for the recorded one, which it may change. changed lists the paths that differ, sorted; none: nothing is
// written. limits: the containers need an update. The writer calls it, so it must neither block nor call the store.
type SpecChange func(old *agboxv1.CreateSpec) (next *agboxv1.CreateSpec, changed []string, limits bool, err error)

// UpdateSpec replaces the spec of a live sandbox by the result of change, with SANDBOX_SPEC_CHANGED and the next generation of an
// otherwise unchanged intent. It returns the changed paths. If the timeout changes and SetTimeout would be allowed, the new deadline counts
// from now, by the spec's timeout or, if it has none, by timeout (0: forever), with SANDBOX_TIMEOUT_SET. Errors: change's; Refusals
// SANDBOX_NOT_FOUND and SANDBOX_INVALID_STATE (being deleted); ErrDataLoss; ErrInvalidArgument; ErrUnavailable.
func (s *Store) UpdateSpec(ctx context.Context, id string, timeout time.Duration, change SpecChange) (sb Sandbox, changed []string, err error) {
	now, err := updated(ctx, s, func(t *txn) (*Sandbox, error) {
		sb, err := t.sandbox(id, beingDeleted(id))
		switch {
		case err != nil:
			return nil, err
		case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
			return nil, beingDeleted(id)
		}
		u := specUpdate{timeout: timeout}
		u.next, u.changed, u.limits, err = change(proto.CloneOf(sb.Spec))
		switch changed = u.changed; {
		case err != nil, len(changed) == 0:
			return sb, err
		case u.next == nil:
			return nil, fmt.Errorf("update sandbox %s: no spec: %w", id, errdefs.ErrInvalidArgument)
		}
		u.next = proto.CloneOf(u.next)
		return sb, t.updateSpec(sb, u)
	})
	if err != nil {
		return Sandbox{}, nil, err
	}
	return now.copied(), changed, nil
}

type specUpdate struct {
	next    *agboxv1.CreateSpec
	changed []string
	limits  bool
	timeout time.Duration // if next has none; 0: forever
}

func (t *txn) updateSpec(sb *Sandbox, u specUpdate) error {
	events, err := u.apply(sb, t.now)
	if err != nil {
		return err
	}
	t.put(bucketConfig, sb.ID, sb.Spec)
	t.put(bucketDesired, sb.ID, sb.Desired)
	for _, ev := range events {
		t.append(sb, ev)
	}
	t.keep(sb, "")
	return nil
}

// apply changes the draft and returns the events of the update.
func (u specUpdate) apply(sb *Sandbox, now time.Time) ([]*agboxv1.SandboxEvent, error) {
	retimed := sb.hasLifetime() && !proto.Equal(sb.Spec.GetTimeout(), u.next.GetTimeout())
	sb.Spec, sb.Desired = u.next, proto.CloneOf(sb.Desired)
	sb.Desired.Generation++
	sb.Desired.LimitsPending = sb.Desired.GetLimitsPending() || u.limits
	events := []*agboxv1.SandboxEvent{{
		EventType: agboxv1.EventType_SANDBOX_SPEC_CHANGED, Details: &agboxv1.SandboxEvent_SpecChange{
			SpecChange: &agboxv1.SpecChangeDetails{Fields: u.changed},
		},
	}}
	if !retimed {
		return events, nil
	}
	timeout := u.timeout
	if own := u.next.GetTimeout(); own != nil {
		timeout = own.AsDuration()
	}
	at, from, err := Timeout{After: timeout}.deadline(now)
	if err != nil {
		return nil, fmt.Errorf("update sandbox %s: %w", sb.ID, err)
	}
	sb.Desired.DeadlineAt, sb.Desired.DeadlineFrom, sb.Desired.DeadlineSet = at, from, true
	return append(events, timeoutEvent(at)), nil
}
