package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Report appends the events that a reconcile pass calls for, in one transaction with what they change. A SANDBOX_DELETED
// also records the time of deletion; after it the sandbox is no longer live. Intent and generation never change here. A
// report without anything new writes nothing. Errors: ErrAborted when the intent is no longer r.Generation, or the
// sandbox is DELETED; SANDBOX_NOT_FOUND; ErrInvalidArgument for events that are not for Report;
// ErrFailedPrecondition for a SANDBOX_DELETED that nobody asked for or while execs are active; ErrDataLoss;
// ErrUnavailable.
func (s *Store) Report(ctx context.Context, id string, r Report) error {
	events, err := reportable(r.Events)
	if err != nil {
		return fmt.Errorf("report on sandbox %s: %w", id, err)
	}
	run := r.EngineRun
	if run != nil {
		run = proto.CloneOf(run)
	}
	return s.update(ctx, func(t *txn) error { return t.report(id, r.Generation, events, run) })
}

// reportable copies the events and checks that each is one that a pass may write.
func reportable(events []*agboxv1.SandboxEvent) ([]*agboxv1.SandboxEvent, error) {
	out := make([]*agboxv1.SandboxEvent, 0, len(events))
	for i, ev := range events {
		typ, state := ev.GetEventType(), ev.GetSandboxState()
		deleted := typ == agboxv1.EventType_SANDBOX_DELETED
		switch {
		case typ == agboxv1.EventType_EVENT_TYPE_UNSPECIFIED, isExecEvent(typ):
			return nil, fmt.Errorf("event %s: %w", typ, errdefs.ErrInvalidArgument)
		case deleted != (state == agboxv1.SandboxState_SANDBOX_STATE_DELETED), deleted && i < len(events)-1:
			return nil, fmt.Errorf("event %s with state %s: %w", typ, state, errdefs.ErrInvalidArgument)
		}
		ev = proto.CloneOf(ev)
		if p := ev.GetSandboxPhase(); p != nil { // words of the engine: no reason to lose a state
			p.ErrorMessage = strings.ToValidUTF8(p.GetErrorMessage(), "\uFFFD")
		}
		out = append(out, ev)
	}
	return out, nil
}

func (t *txn) report(id string, generation uint64, events []*agboxv1.SandboxEvent, run *storev1.EngineRun) error {
	gone := fmt.Errorf("report on sandbox %s: it is deleted: %w", id, errdefs.ErrAborted)
	sb, err := t.sandbox(id, gone)
	if err != nil {
		return err
	}
	if have := sb.Desired.GetGeneration(); have != generation {
		return fmt.Errorf("report on sandbox %s: generation is %d, not %d: %w", id, have, generation, errdefs.ErrAborted)
	}
	newRun := run != nil && !proto.Equal(run, sb.Desired.GetEngineRun())
	if len(events) == 0 && !newRun {
		return nil
	}
	if newRun {
		sb.Desired = proto.CloneOf(sb.Desired)
		sb.Desired.EngineRun = run
		if err := t.put(bucketDesired, id, sb.Desired); err != nil {
			return err
		}
	}
	for _, ev := range events {
		if err := t.append(sb, ev); err != nil {
			return err
		}
	}
	t.keep(sb, "")
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
		return t.deleted(sb)
	}
	return nil
}

// deleted stages the end of a sandbox's life.
func (t *txn) deleted(sb *Sandbox) error {
	if run := sb.Desired.GetRunState(); run != storev1.RunState_RUN_STATE_DELETE || len(sb.ActiveExecs) > 0 {
		return fmt.Errorf("report on sandbox %s: deleted with desired state %s and %d active execs: %w",
			sb.ID, run, len(sb.ActiveExecs), errdefs.ErrFailedPrecondition)
	}
	t.changes.sandboxes[sb.ID] = nil
	return t.putInt(bucketDeletedAt, sb.ID, uint64(t.now.UnixNano()))
}
