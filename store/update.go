package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SpecChange returns the next spec for the recorded one, which it must not change. changed lists the paths that differ, sorted; none:
// nothing is written. limits: the containers need an update. It must be pure, because it may be called several times.
type SpecChange func(old *agboxv1.CreateSpec) (next *agboxv1.CreateSpec, changed []string, limits bool, err error)

// errSpecMoved is returned when another update was recorded in between.
var errSpecMoved = errors.New("the spec has changed since it was read")

// UpdateSpec replaces the spec of a live sandbox by the result of change, with SANDBOX_SPEC_CHANGED and the next generation of an
// otherwise unchanged intent. If another update is recorded first, UpdateSpec calls change again with the new spec. It returns the changed
// paths of the recorded update. If the timeout changes and SetTimeout would be allowed, the new deadline counts from now, by the spec's
// timeout or, if it has none, by timeout (0: forever), with SANDBOX_TIMEOUT_SET. Errors: change's; Refusals SANDBOX_NOT_FOUND and
// SANDBOX_INVALID_STATE (being deleted); ErrDataLoss; ErrInvalidArgument; ErrUnavailable.
func (s *Store) UpdateSpec(ctx context.Context, id string, timeout time.Duration, change SpecChange) (sb Sandbox, changed []string, err error) {
	for {
		sb, changed, err = s.tryUpdateSpec(ctx, id, timeout, change)
		if !errors.Is(err, errSpecMoved) { // each further iteration means that another update was recorded
			return sb, changed, err
		}
	}
}

// tryUpdateSpec runs change outside of the writer, which a slow change must not delay.
func (s *Store) tryUpdateSpec(ctx context.Context, id string, timeout time.Duration, change SpecChange) (Sandbox, []string, error) {
	was, err := s.updatable(ctx, id)
	if err != nil {
		return Sandbox{}, nil, err
	}
	next, changed, limits, err := change(proto.CloneOf(was.Spec))
	if err != nil {
		return Sandbox{}, nil, err
	}
	if len(changed) == 0 {
		return was.copied(), nil, nil
	}
	if next == nil {
		return Sandbox{}, nil, fmt.Errorf("update sandbox %s: no spec: %w", id, errdefs.ErrInvalidArgument)
	}
	u := specUpdate{was: was, next: proto.CloneOf(next), changed: changed, limits: limits, timeout: timeout}
	now, err := updated(ctx, s, func(t *txn) (*Sandbox, error) { return t.updateSpec(u) })
	if err != nil {
		return Sandbox{}, nil, err
	}
	return now.copied(), changed, nil
}

// updatable returns the published sandbox if its spec may be replaced.
func (s *Store) updatable(ctx context.Context, id string) (*Sandbox, error) {
	sb, live := s.index.sandbox(id)
	if !live {
		if _, err := s.deletedSandbox(ctx, id); err != nil {
			return nil, err
		}
		return nil, beingDeleted(id)
	}
	return sb, checkUpdatable(sb)
}

func checkUpdatable(sb *Sandbox) error {
	switch {
	case sb.Corrupt:
		return corruptSandbox(sb.ID)
	case sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE:
		return beingDeleted(sb.ID)
	}
	return nil
}

// specUpdate is an update computed from was.
type specUpdate struct {
	was     *Sandbox
	next    *agboxv1.CreateSpec
	changed []string
	limits  bool
	timeout time.Duration // if next has none; 0: forever
}

func (t *txn) updateSpec(u specUpdate) (*Sandbox, error) {
	sb, err := t.sandbox(u.was.ID, beingDeleted(u.was.ID))
	if err != nil {
		return nil, err
	}
	if err := checkUpdatable(sb); err != nil {
		return nil, err
	}
	if sb.Spec != u.was.Spec { // specs are immutable: the same one is the same pointer
		return nil, errSpecMoved
	}
	events, err := u.apply(sb, t.now)
	if err != nil {
		return nil, err
	}
	t.put(bucketConfig, sb.ID, sb.Spec)
	t.put(bucketDesired, sb.ID, sb.Desired)
	for _, ev := range events {
		if err := t.append(sb, ev); err != nil {
			return nil, err
		}
	}
	t.keep(sb, "")
	return sb, nil
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
