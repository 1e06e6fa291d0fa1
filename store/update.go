package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// SpecChange makes the next spec from the recorded one, which it must not change. changed are the paths that differ,
// sorted; none: nothing is written. limits: the containers need an update. It is pure: it may be called several times.
type SpecChange func(old *agboxv1.CreateSpec) (next *agboxv1.CreateSpec, changed []string, limits bool, err error)

// errSpecMoved: another update came between.
var errSpecMoved = errors.New("the spec has changed since it was read")

// UpdateSpec replaces the spec of a live sandbox by what change makes of it, with SANDBOX_SPEC_CHANGED and the next
// generation of an intent that is otherwise the same. What change has seen is what it replaces: after a lost race it is
// called again. changed is what change said of the spec that is now recorded. Errors: those of change; Refusals
// SANDBOX_NOT_FOUND and SANDBOX_INVALID_STATE (being deleted); ErrDataLoss; ErrInvalidArgument; ErrUnavailable.
func (s *Store) UpdateSpec(ctx context.Context, id string, change SpecChange) (sb Sandbox, changed []string, err error) {
	for {
		sb, changed, err = s.tryUpdateSpec(ctx, id, change)
		if !errors.Is(err, errSpecMoved) { // each further round means that another update was recorded
			return sb, changed, err
		}
	}
}

// tryUpdateSpec runs change outside of the writer, which nobody's diff must delay.
func (s *Store) tryUpdateSpec(ctx context.Context, id string, change SpecChange) (Sandbox, []string, error) {
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
	next = proto.CloneOf(next)
	var now *Sandbox
	err = s.update(ctx, func(t *txn) error {
		var err error
		now, err = t.updateSpec(was, next, changed, limits)
		return err
	})
	if err != nil {
		return Sandbox{}, nil, err
	}
	return now.copied(), changed, nil
}

// updatable returns the published sandbox, whose spec may be replaced.
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

func (t *txn) updateSpec(was *Sandbox, next *agboxv1.CreateSpec, changed []string, limits bool) (*Sandbox, error) {
	sb, err := t.sandbox(was.ID, beingDeleted(was.ID))
	if err != nil {
		return nil, err
	}
	if err := checkUpdatable(sb); err != nil {
		return nil, err
	}
	if sb.Spec != was.Spec { // specs are immutable: the same one is the same pointer
		return nil, errSpecMoved
	}
	sb.Spec, sb.Desired = next, proto.CloneOf(sb.Desired)
	sb.Desired.Generation++
	sb.Desired.LimitsPending = sb.Desired.GetLimitsPending() || limits
	if err := t.put(bucketConfig, sb.ID, next); err != nil {
		return nil, err
	}
	if err := t.put(bucketDesired, sb.ID, sb.Desired); err != nil {
		return nil, err
	}
	ev := &agboxv1.SandboxEvent{EventType: agboxv1.EventType_SANDBOX_SPEC_CHANGED, Details: &agboxv1.SandboxEvent_SpecChange{
		SpecChange: &agboxv1.SpecChangeDetails{Fields: changed},
	}}
	if err := t.append(sb, ev); err != nil {
		return nil, err
	}
	t.keep(sb, "")
	return sb, nil
}
