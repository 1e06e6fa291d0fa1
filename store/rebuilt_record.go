package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// maxSequence is the largest sequence accepted from a record; it leaves room for later events.
const maxSequence = 1 << 62

// newRebuilt copies and validates r. Errors: ErrInvalidArgument when it is not of a live sandbox.
func newRebuilt(r Rebuilt) (*rebuiltSandbox, error) {
	if err := checkRebuilt(r.Record); err != nil {
		return nil, fmt.Errorf("record rebuilt sandbox %q: %w: %w", r.Record.GetSandboxId(), err, errdefs.ErrInvalidArgument)
	}
	rec := proto.CloneOf(r.Record)
	d := rec.GetDesired()
	sb := &Sandbox{ID: rec.GetSandboxId(), Name: d.GetName(), Spec: rec.GetSpec(), Desired: d, LastSequence: rec.GetLastSequence()}
	if sb.Progress = validProgress(rec.GetProgress()); sb.Progress == nil {
		sb.Progress = &storev1.Progress{}
	}
	if n := rec.GetCreatedAt(); n > 0 {
		sb.CreatedAt = fromNanos(uint64(n))
	}
	a := &rebuiltSandbox{sb: sb, state: agboxv1.SandboxState(rec.GetState()), idleSince: rec.GetIdleSince()}
	a.details = &agboxv1.RehydratedDetails{StateChangedAt: timestampOf(rec.GetStateChangedAt())}
	if a.state == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		a.details.ErrorCode, a.details.ErrorMessage = valid(rec.GetErrorCode()), valid(rec.GetErrorMessage())
	}
	a.details.Preparing = rec.GetPreparing() && a.state == agboxv1.SandboxState_SANDBOX_STATE_PENDING &&
		d.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE
	a.defaulted(d.GetRehydrated().GetDefaulted()...) // a field defaulted in an earlier rebuild is still unknown
	a.defaulted(r.Defaulted...)
	for _, e := range r.Execs {
		a.addExec(e)
	}
	return a, nil
}

// checkRebuilt returns why a record cannot be of a live sandbox.
func checkRebuilt(rec *storev1.SandboxRecord) error {
	d := rec.GetDesired()
	state := agboxv1.SandboxState(rec.GetState())
	_, wanted := storev1.RunState_name[int32(d.GetRunState())]
	switch {
	case checkID("sandbox ID", rec.GetSandboxId()) != nil:
		return fmt.Errorf("an ID of %d bytes", len(rec.GetSandboxId()))
	case rec.GetSpec() == nil:
		return errors.New("there is no spec")
	case !sandboxstate.IsLive(state):
		return fmt.Errorf("state %s is not of a live one", state)
	case d.GetGeneration() == 0, !wanted, d.GetRunState() == storev1.RunState_RUN_STATE_UNSPECIFIED:
		return fmt.Errorf("no intent: %s in generation %d", d.GetRunState(), d.GetGeneration())
	case len(d.GetName()) > maxIDBytes:
		return fmt.Errorf("a name of %d bytes", len(d.GetName()))
	case rec.GetLastSequence() > maxSequence:
		return fmt.Errorf("event sequence %d", rec.GetLastSequence())
	}
	return nil
}

func timestampOf(nanos int64) *timestamppb.Timestamp {
	if nanos <= 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, nanos))
}

// addExec copies the record of an exec if it belongs to this sandbox.
func (a *rebuiltSandbox) addExec(r *storev1.ExecRecord) {
	r = proto.CloneOf(r)
	e := Exec{ID: r.GetExecId(), SandboxID: a.sb.ID, Request: r.GetRequest(), Desired: r.GetDesired(), End: r.GetEnd()}
	if e.Request == nil {
		e.Request = &agboxv1.CreateExecRequest{}
	}
	_, ended := endEvents[agboxv1.ExecState(e.End.GetState())]
	switch req := e.Request; {
	case checkID("exec ID", e.ID) != nil, e.Desired.GetNonce() == "", e.End != nil && !ended,
		req.GetExecId() != "" && req.GetExecId() != e.ID, req.GetSandboxId() != "" && req.GetSandboxId() != e.SandboxID,
		e.Desired.GetStartedSequence() > maxSequence, e.End.GetSequence() > maxSequence:
		a.defaulted("execs")
		return
	}
	e.Request.ExecId, e.Request.SandboxId = e.ID, e.SandboxID
	if e.End != nil {
		e.End.ErrorMessage = valid(e.End.GetErrorMessage())
	}
	a.execs = append(a.execs, e)
}

// defaulted adds names of fields that recovery could not determine.
func (a *rebuiltSandbox) defaulted(fields ...string) {
	all := append(a.details.GetDefaulted(), fields...)
	slices.Sort(all)
	a.details.Defaulted = slices.Compact(all)
}

// number sets the unknown sequences of the execs, none greater than the sandbox's last one, and that last one if it is unknown. A sequence
// is unknown when the database or the mirror lost a part of the exec.
func (a *rebuiltSandbox) number(now time.Time) {
	last := a.sb.LastSequence
	for _, e := range a.execs {
		last = max(last, e.Desired.GetStartedSequence(), e.End.GetSequence())
	}
	if a.sb.LastSequence == 0 {
		last = max(last, uint64(max(now.Unix(), 0)))
	}
	if len(a.execs) > 0 {
		last = max(last, 2) // an exec has two events
	}
	last = max(last, 1)
	for _, e := range a.execs {
		if e.Desired.GetStartedSequence() == 0 {
			e.Desired.StartedSequence = 1
		}
		if e.End != nil && e.End.GetSequence() <= e.Desired.GetStartedSequence() {
			e.Desired.StartedSequence, e.End.Sequence = last-1, last
		}
	}
	a.sb.LastSequence = last
}

// startHistory marks all events before the first one as dropped, and copies the details of the event into the intent.
func (a *rebuiltSandbox) startHistory(now time.Time) {
	sb := a.sb
	sb.history = history{dropped: sb.LastSequence, trimmed: sb.LastSequence, scanned: sb.LastSequence}
	a.details.RehydratedAt = timestamppb.New(now)
	if a.state == agboxv1.SandboxState_SANDBOX_STATE_READY && len(sb.ActiveExecs) == 0 {
		if a.details.IdleSince = timestampOf(a.idleSince); a.details.IdleSince == nil {
			a.details.IdleSince = timestamppb.New(now)
		}
	}
	sb.Desired.Rehydrated = a.details
}
