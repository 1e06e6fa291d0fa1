package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// CreateSandbox reserves id, and name unless it is empty, and records config, intent and SANDBOX_ACCEPTED. Errors:
// Refusals SANDBOX_ID_ALREADY_EXISTS (also for IDs of the past) and SANDBOX_NAME_ALREADY_EXISTS; ErrInvalidArgument;
// ErrUnavailable.
func (s *Store) CreateSandbox(ctx context.Context, id, name string, spec *agboxv1.CreateSpec) (Sandbox, error) {
	if err := checkID("sandbox ID", id); err != nil {
		return Sandbox{}, err
	}
	if spec == nil || len(name) > maxIDBytes {
		return Sandbox{}, fmt.Errorf("create sandbox %s: no spec, or a name of %d bytes: %w", id, len(name), errdefs.ErrInvalidArgument)
	}
	spec = proto.CloneOf(spec)
	var created *Sandbox
	err := s.update(ctx, func(t *txn) error {
		var err error
		created, err = t.create(id, name, spec)
		return err
	})
	if err != nil {
		return Sandbox{}, err
	}
	return created.copied(), nil
}

func (t *txn) create(id, name string, spec *agboxv1.CreateSpec) (*Sandbox, error) {
	if get(t.tx, bucketSandboxID, []byte(id)) != nil {
		return nil, sandboxExists(id)
	}
	if name != "" && t.nameHolder(name) != "" {
		return nil, nameExists(id, name)
	}
	nanos := uint64(t.now.UnixNano())
	sb := &Sandbox{ID: id, Name: name, Spec: spec, CreatedAt: fromNanos(nanos)}
	if err := t.putInt(bucketSandboxID, id, nanos); err != nil {
		return nil, err
	}
	if err := t.put(bucketConfig, id, spec); err != nil {
		return nil, err
	}
	if err := t.holdName(id, name); err != nil {
		return nil, err
	}
	sb.Desired = &storev1.Desired{Attempt: storev1.Attempt_ATTEMPT_CREATE, Name: name}
	if err := t.intend(sb, storev1.RunState_RUN_STATE_RUN, ""); err != nil {
		return nil, err
	}
	accepted := agboxv1.SandboxEvent{EventType: agboxv1.EventType_SANDBOX_ACCEPTED, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_PENDING}
	if err := t.append(sb, &accepted); err != nil {
		return nil, err
	}
	t.keep(sb, "")
	return sb, nil
}

func (t *txn) holdName(id, name string) error {
	if name == "" {
		return nil
	}
	t.changes.names[name] = id
	return t.put(bucketNames, name, &storev1.NameRef{SandboxId: id})
}

// intend stages the next generation of the desired state.
func (t *txn) intend(sb *Sandbox, run storev1.RunState, reason string) error {
	d := proto.CloneOf(sb.Desired)
	d.RunState, d.Reason, d.RequestedAt = run, reason, t.now.UnixNano()
	d.Generation++
	sb.Desired = d
	return t.put(bucketDesired, sb.ID, d)
}

// change is an accepted change of intent together with its event.
func (t *txn) change(sb *Sandbox, run storev1.RunState, typ agboxv1.EventType, state agboxv1.SandboxState, reason string) error {
	if err := t.intend(sb, run, reason); err != nil {
		return err
	}
	ev := &agboxv1.SandboxEvent{EventType: typ, SandboxState: state}
	if reason != "" {
		ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: reason}}
	}
	if err := t.append(sb, ev); err != nil {
		return err
	}
	t.keep(sb, "")
	return nil
}
