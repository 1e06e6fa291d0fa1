package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Resolved holds the host and configuration properties that CreateSandbox records for the sandbox's whole life.
type Resolved struct {
	Tools       []*storev1.ToolMount
	Confinement *storev1.Confinement
	// Caller is who creates the sandbox; its limit is one of sandboxes.
	Caller Caller
}

// CreateSandbox reserves id, and name unless it is empty, and records config, intent and SANDBOX_ACCEPTED. r is recorded with the intent;
// nil: nothing was resolved. The fixed host ports of spec are reserved until the sandbox is FAILED or its delete is requested. Errors:
// Refusals SANDBOX_ID_ALREADY_EXISTS (also for the ID of a deleted sandbox), SANDBOX_NAME_ALREADY_EXISTS, SANDBOX_PORT_ALREADY_IN_USE
// and CALLER_LIMIT; ErrInvalidArgument; ErrUnavailable.
func (s *Store) CreateSandbox(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, r *Resolved) (Sandbox, error) {
	if err := checkID("sandbox ID", id); err != nil {
		return Sandbox{}, err
	}
	if spec == nil || len(name) > maxIDBytes {
		return Sandbox{}, fmt.Errorf("create sandbox %s: no spec, or a name of %d bytes: %w", id, len(name), errdefs.ErrInvalidArgument)
	}
	sb := &Sandbox{ID: id, Name: name, Spec: proto.CloneOf(spec), Progress: &storev1.Progress{}}
	d := &storev1.Desired{Attempt: storev1.Attempt_ATTEMPT_CREATE, Name: name}
	var by Caller
	if r != nil {
		by = r.Caller
		d.ToolMounts, d.Confinement, d.Caller = r.Tools, r.Confinement, by.of(spec)
	}
	sb.Desired = proto.CloneOf(d)
	if err := s.update(ctx, func(t *txn) error { return t.create(sb, by) }); err != nil {
		return Sandbox{}, err
	}
	return sb.copied(), nil
}

// CheckCreate returns the error that CreateSandbox would return, and records nothing. It treats the live sandbox whose ID is without as
// already deleted; empty: no sandbox. Errors: as CreateSandbox.
func (s *Store) CheckCreate(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, by Caller, without string) error {
	if err := checkID("sandbox ID", id); err != nil {
		return err
	}
	sb := &Sandbox{ID: id, Name: name, Spec: proto.CloneOf(spec), Desired: &storev1.Desired{Caller: by.of(spec)}}
	return s.update(ctx, func(t *txn) error { return t.mayCreate(sb, by, without) })
}

// create stages the records of sb; the caller has set its spec and intent.
func (t *txn) create(sb *Sandbox, by Caller) error {
	if err := t.mayCreate(sb, by, ""); err != nil {
		return err
	}
	nanos := uint64(t.now.UnixNano())
	sb.CreatedAt = fromNanos(nanos)
	sb.Agents = t.agentsIn(sb.ID) // agents of a sandbox with this ID whose record was lost with a database
	t.putInt(bucketSandboxID, sb.ID, nanos)
	t.put(bucketConfig, sb.ID, sb.Spec)
	t.holdName(sb.ID, sb.Name)
	t.count(sb.Desired.GetCaller(), usage{sandboxes: 1})
	t.change(sb, storev1.RunState_RUN_STATE_RUN, agboxv1.EventType_SANDBOX_ACCEPTED, agboxv1.SandboxState_SANDBOX_STATE_PENDING, "")
	return nil
}

// mayCreate refuses an ID that was ever used, a name or a host port held by a live sandbox other than without, and a caller whose other
// sandboxes reach a limit of by.
func (t *txn) mayCreate(sb *Sandbox, by Caller, without string) error {
	if get(t.tx, bucketSandboxID, []byte(sb.ID)) != nil {
		return sandboxExists(sb.ID)
	}
	if holder := t.nameHolder(sb.Name); sb.Name != "" && holder != "" && holder != without {
		return refuse("sandbox_id", sb.ID, "SANDBOX_NAME_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "sandbox name %s already exists", sb.Name)
	}
	if err := t.checkPorts(sb, without); err != nil {
		return err
	}
	caller := sb.Desired.GetCaller()
	has := t.usage(caller)
	if other := t.live(without); other != nil && other.Desired.GetCaller() == caller {
		has = has.plus(usage{sandboxes: -1, pending: -pendingIn(other.State)})
	}
	if err := refuseCaller(caller, has.sandboxes, by.Limit, "limits.sandboxes_per_caller", "sandboxes", "delete one"); err != nil {
		return err
	}
	return refuseCaller(caller, has.pending, by.PendingLimit, "limits.pending_per_caller", "sandboxes that are PENDING", "wait until one is READY")
}

func (t *txn) holdName(id, name string) {
	if name == "" {
		return
	}
	t.changes.names[name] = id
	t.welcome(name)
	t.put(bucketNames, name, &storev1.NameRef{SandboxId: id})
}

// intend stages the next generation of the desired state. It clears a demotion, which ends with its pause; a stop also clears the
// deadline.
func (t *txn) intend(sb *Sandbox, run storev1.RunState, reason string) {
	d := proto.CloneOf(sb.Desired)
	d.RunState, d.Reason, d.RequestedAt = run, reason, t.now.UnixNano()
	d.Generation++
	d.DemotedAt = 0
	if run == storev1.RunState_RUN_STATE_STOP {
		d.DeadlineAt, d.DeadlineFrom, d.DeadlineSet = 0, 0, false
	}
	sb.Desired = d
	t.put(bucketDesired, sb.ID, d)
}

// change stages an accepted change of intent together with its event.
func (t *txn) change(sb *Sandbox, run storev1.RunState, typ agboxv1.EventType, state agboxv1.SandboxState, reason string) {
	t.intend(sb, run, reason)
	ev := &agboxv1.SandboxEvent{EventType: typ, SandboxState: state}
	if reason != "" {
		ev.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: reason}}
	}
	t.append(sb, ev)
	t.keep(sb, "")
}
