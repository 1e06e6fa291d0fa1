package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Report appends the events of a reconcile pass, in one transaction with the records that they change. A SANDBOX_DELETED also records the
// time of deletion; the sandbox is then no longer live. A SANDBOX_READY starts the sandbox's lifetime. Report changes neither the requested
// run state nor the generation. A report without changes writes nothing. Errors: ErrAborted when the generation is no longer r.Generation,
// or the sandbox is DELETED; SANDBOX_NOT_FOUND; ErrInvalidArgument for events that Report does not accept; ErrFailedPrecondition for a
// SANDBOX_DELETED, SANDBOX_PAUSED or SANDBOX_STOPPED without that intent, or a SANDBOX_DELETED while execs are active or agents keep the
// sandbox; sandboxstate.ErrIllegal, which is ErrInternal, for a transition that the state table does not have: a bug; ErrDataLoss;
// ErrUnavailable.
func (s *Store) Report(ctx context.Context, id string, r Report) error {
	events, err := reportable(r.Events)
	if err != nil {
		return fmt.Errorf("report on sandbox %s: %w", id, err)
	}
	r.Events = events
	r.EngineRun, r.Objects = proto.CloneOf(r.EngineRun), proto.CloneOf(r.Objects) // nil stays nil
	r.Progress = validProgress(r.Progress)
	return s.update(ctx, func(t *txn) error { return t.report(id, r) })
}

// reportable copies the events and checks that a pass may write each of them.
func reportable(events []*agboxv1.SandboxEvent) ([]*agboxv1.SandboxEvent, error) {
	out := make([]*agboxv1.SandboxEvent, 0, len(events))
	for _, ev := range events {
		if typ := ev.GetEventType(); typ == agboxv1.EventType_EVENT_TYPE_UNSPECIFIED || isExecEvent(typ) || isStoreEvent(typ) {
			return nil, fmt.Errorf("event %s: %w", typ, errdefs.ErrInvalidArgument)
		}
		ev = proto.CloneOf(ev)
		if p := ev.GetSandboxPhase(); p != nil { // text of the engine: invalid UTF-8 must not lose a state
			p.ErrorMessage = valid(p.GetErrorMessage())
		}
		if p := ev.GetService(); p != nil {
			p.ErrorMessage = valid(p.GetErrorMessage())
		}
		out = append(out, ev)
	}
	return out, nil
}

// valid replaces invalid UTF-8 in program output, which protobuf would refuse.
func valid(words string) string { return strings.ToValidUTF8(words, "\uFFFD") }

// validProgress copies p; nil stays nil.
func validProgress(p *storev1.Progress) *storev1.Progress {
	p = proto.CloneOf(p)
	for _, svc := range p.GetServices() {
		if svc != nil {
			svc.ErrorMessage = valid(svc.GetErrorMessage())
		}
	}
	return p
}

func (t *txn) report(id string, r Report) error {
	gone := fmt.Errorf("report on sandbox %s: it is deleted: %w", id, errdefs.ErrAborted)
	sb, err := t.sandbox(id, gone)
	if err != nil {
		return err
	}
	if have := sb.Desired.GetGeneration(); have != r.Generation {
		return fmt.Errorf("report on sandbox %s: generation is %d, not %d: %w", id, have, r.Generation, errdefs.ErrAborted)
	}
	learned, progressed := t.learn(sb, r), t.progress(sb, r.Progress)
	if len(r.Events) == 0 && !learned && !progressed {
		return nil
	}
	for _, ev := range r.Events {
		t.append(sb, ev)
	}
	for typ, want := range map[agboxv1.EventType]storev1.RunState{
		agboxv1.EventType_SANDBOX_PAUSED:  storev1.RunState_RUN_STATE_PAUSE,
		agboxv1.EventType_SANDBOX_STOPPED: storev1.RunState_RUN_STATE_STOP,
	} {
		if sb.Desired.GetRunState() != want && has(r.Events, typ) {
			return fmt.Errorf("report on sandbox %s: %s is not wanted: %w", id, typ, errdefs.ErrFailedPrecondition)
		}
	}
	t.keep(sb, "")
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
		return t.deleted(sb)
	}
	return nil
}

func has(events []*agboxv1.SandboxEvent, typ agboxv1.EventType) bool {
	return slices.ContainsFunc(events, func(ev *agboxv1.SandboxEvent) bool { return ev.GetEventType() == typ })
}

// learn stages the facts that a pass observed, and the start of the lifetime.
func (t *txn) learn(sb *Sandbox, r Report) (changed bool) {
	d := proto.CloneOf(sb.Desired)
	if r.EngineRun != nil {
		d.EngineRun = r.EngineRun
	}
	if r.Objects != nil {
		d.Objects = r.Objects
	}
	if r.LimitsApplied {
		d.LimitsPending = false
	}
	if d.GetRunState() == storev1.RunState_RUN_STATE_RUN && has(r.Events, agboxv1.EventType_SANDBOX_READY) {
		begin(d, r.Timeout, t.now)
	}
	if proto.Equal(d, sb.Desired) {
		return false
	}
	sb.Desired = d
	t.put(bucketDesired, sb.ID, d)
	return true
}

// progress stages p as the progress of sb, unless it is nil or the same.
func (t *txn) progress(sb *Sandbox, p *storev1.Progress) (changed bool) {
	if p == nil || proto.Equal(p, sb.Progress) {
		return false
	}
	sb.Progress = p
	if p.GetMissing() { // the missing verdict uses up the confirmation; a later disappearance needs its own
		t.delete(bucketGivenUp, sb.ID)
	}
	t.put(bucketProgress, sb.ID, p)
	return true
}

// deleted stages the removal of a sandbox from the live ones.
func (t *txn) deleted(sb *Sandbox) error {
	if run := sb.Desired.GetRunState(); run != storev1.RunState_RUN_STATE_DELETE || len(sb.ActiveExecs) > 0 {
		return fmt.Errorf("report on sandbox %s: deleted with desired state %s and %d active execs: %w",
			sb.ID, run, len(sb.ActiveExecs), errdefs.ErrFailedPrecondition)
	}
	if n := t.readableAgents(sb); n > 0 {
		return fmt.Errorf("report on sandbox %s: deleted with %d agents: %w", sb.ID, n, errdefs.ErrFailedPrecondition)
	}
	t.changes.sandboxes[sb.ID] = nil
	t.count(sb.Desired.GetCaller(), usage{sandboxes: -1})
	t.delete(bucketGivenUp, sb.ID)
	t.putInt(bucketDeletedAt, sb.ID, uint64(t.now.UnixNano()))
	return nil
}
