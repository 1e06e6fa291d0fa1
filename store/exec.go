package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// nonceBytes is the length of a nonce: 128 bits, which no container can guess.
const nonceBytes = 16

// CreateExec reserves req's exec_id and records the request, the intent with a new nonce, and EXEC_STARTED. At the commit the sandbox must
// be READY and wanted to run; or its spec has auto_resume and it is PAUSED, pausing or resuming. The same transaction then requests the
// resume, unless one was requested before. Errors: Refusals SANDBOX_NOT_FOUND, SANDBOX_NOT_READY, SANDBOX_ADOPTED, EXEC_ID_ALREADY_EXISTS (also for the
// ID of an earlier exec, in any sandbox) and CALLER_LIMIT; ErrInvalidArgument; ErrDataLoss; ErrUnavailable.
func (s *Store) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest, by Caller) (Exec, error) {
	if err := errors.Join(checkID("exec ID", req.GetExecId()), checkID("sandbox ID", req.GetSandboxId())); err != nil {
		return Exec{}, err
	}
	e := newExec(proto.CloneOf(req))
	if err := s.update(ctx, func(t *txn) error { return t.createExec(e, by) }); err != nil {
		return Exec{}, err
	}
	e.Anchor = e.Desired.GetStartedSequence()
	return e, nil
}

// newExec returns the exec for a request, with a new nonce.
func newExec(req *agboxv1.CreateExecRequest) Exec {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // it never fails
	return Exec{
		ID: req.GetExecId(), SandboxID: req.GetSandboxId(), Request: req,
		Desired: &storev1.ExecDesired{Nonce: hex.EncodeToString(nonce)},
	}
}

func (t *txn) createExec(e Exec, by Caller) error {
	sb, err := t.sandbox(e.SandboxID, notReadyToExec(e.SandboxID))
	if err != nil {
		return err
	}
	taken, wakes := sb.acceptsExec()
	switch {
	case !taken:
		return notReadyToExec(sb.ID)
	case sb.isAdopted():
		return hasNoShim(sb.ID)
	case get(t.tx, bucketExecID, []byte(e.ID)) != nil:
		return execExists(e.ID)
	}
	caller := by.in(sb)
	if err := refuseCaller(caller, t.usage(caller).execs, by.Limit, "limits.execs_per_caller", "running execs", "wait for one to end, or cancel one"); err != nil {
		return err
	}
	e.Desired.Caller = caller
	if wakes {
		t.resume(sb, false)
	}
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN {
		e.Desired.BootId = t.bootID // its first pass dispatches it
	}
	t.startExec(sb, e)
	return nil
}

// startExec stages e as an active exec of sb.
func (t *txn) startExec(sb *Sandbox, e Exec) {
	sb.ActiveExecs = withID(sb.ActiveExecs, e.ID)
	ev := execEvent(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{
		ExecId: e.ID, ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING, Command: EventCommand(e.Request.GetCommand()),
	})
	t.append(sb, ev)
	e.Desired.CreatedAt, e.Desired.StartedSequence = t.now.UnixNano(), ev.GetSequence()
	if grace, ends := validate.StdinGrace(e.Request.GetStdin()); ends {
		e.Desired.StdinDeadline = t.now.Add(grace).UnixNano() // its first writer has yet to come
	}
	t.activate(e)
	t.keep(sb, e.ID)
	t.putExec(e, e.Desired.GetCreatedAt())
}

// activate stages e as active.
func (t *txn) activate(e Exec) {
	active := activeExec{sandboxID: e.SandboxID, caller: e.Desired.GetCaller()}
	t.changes.execs[e.ID] = active
	t.count(active.caller, usage{execs: 1})
}

// active returns an exec that has not ended, as earlier requests left it; zero: there is none.
func (t *txn) active(execID string) activeExec { return latest(t.group.execs, t.index.execs, execID) }

// eventCommandBytes bounds the command in an event, with one byte more for each argument.
const eventCommandBytes = 1024

// EventCommand returns a command as EXEC_STARTED has it: the last argument of one longer than the bound is cut and ends in "...".
func EventCommand(command []string) []string {
	left := eventCommandBytes
	for i, arg := range command {
		if left -= len(arg) + 1; left < 0 {
			return append(slices.Clone(command[:i]), strings.ToValidUTF8(arg[:max(0, left+len(arg))], "")+"...")
		}
	}
	return command
}

// putExec stages the records of a new exec.
func (t *txn) putExec(e Exec, created int64) {
	t.putInt(bucketExecID, e.ID, uint64(created))
	t.put(bucketExecRefs, e.ID, &storev1.ExecRef{SandboxId: e.SandboxID})
	t.put(prefixExecConfig+e.SandboxID, e.ID, e.Request)
	t.put(prefixExecDesired+e.SandboxID, e.ID, e.Desired)
}

// acceptsExec reports whether an exec may be recorded for sb, and whether sb must be resumed for it.
func (sb *Sandbox) acceptsExec() (taken, wakes bool) {
	switch {
	case sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN:
		return true, false
	case !sb.Spec.GetAutoResume():
		return false, false
	case sb.isResuming():
		return true, false
	}
	wakes = sb.isPaused() || sb.isPausing()
	return wakes, wakes
}

func execEvent(typ agboxv1.EventType, d *agboxv1.ExecEventDetails) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventType: typ, Details: &agboxv1.SandboxEvent_Exec{Exec: d}}
}

// withID and withoutID return a new sorted slice, because published slices are immutable.
func withID(ids []string, id string) []string {
	i, _ := slices.BinarySearch(ids, id)
	return slices.Concat(ids[:i], []string{id}, ids[i:])
}

func withoutID(ids []string, id string) []string {
	i, ok := slices.BinarySearch(ids, id)
	if !ok {
		return ids
	}
	return slices.Concat(ids[:i], ids[i+1:])
}

// RequestCancel records once that an exec should be cancelled. changed is false when that was recorded before. Errors: Refusals
// EXEC_NOT_FOUND and EXEC_ALREADY_TERMINAL; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestCancel(ctx context.Context, execID string) (changed bool, err error) {
	return updated(ctx, s, func(t *txn) (bool, error) {
		id, err := t.sandboxOf(execID)
		switch {
		case err != nil:
			return false, err
		case get(t.tx, prefixExecStatus+id, []byte(execID)) != nil:
			return false, execTerminal(execID)
		}
		return t.cancel(id, execID)
	})
}

// cancel stages the cancel of an exec, unless it is recorded already.
func (t *txn) cancel(id, execID string) (changed bool, err error) {
	d, err := read[*storev1.ExecDesired](t.tx, prefixExecDesired+id, execID)
	if err != nil {
		return false, fmt.Errorf("read intent of exec %s: %w: %w", execID, err, errdefs.ErrDataLoss)
	}
	if d.GetCancelRequestedAt() != 0 {
		return false, nil
	}
	d.CancelRequestedAt = t.now.UnixNano()
	t.touched = append(t.touched, Change{SandboxID: id, ExecID: execID})
	t.put(prefixExecDesired+id, execID, d)
	return true, nil
}

// sandboxOf returns the sandbox ID of an exec, active or ended. Errors: EXEC_NOT_FOUND; ErrDataLoss.
func (t *txn) sandboxOf(execID string) (string, error) {
	if id := t.active(execID).sandboxID; id != "" {
		return id, nil
	}
	return endedExecSandbox(t.tx, execID)
}

// endedExecSandbox reads the sandbox ID of an exec from the file. It ignores the references of an unfinished purge.
func endedExecSandbox(tx *bolt.Tx, execID string) (string, error) {
	ref, err := read[*storev1.ExecRef](tx, bucketExecRefs, execID)
	switch {
	case errdefs.IsNotFound(err):
		return "", execNotFound(execID)
	case err != nil:
		return "", fmt.Errorf("find sandbox of exec %s: %w", execID, err)
	case !hasRecord(tx, ref.GetSandboxId()):
		return "", execNotFound(execID)
	}
	return ref.GetSandboxId(), nil
}

// EndExec records the end of an exec and its event, once: for an exec that has already ended it writes nothing and returns nil. The store
// sets end.Sequence on a copy. Errors: EXEC_NOT_FOUND; ErrInvalidArgument for a state that is not terminal; ErrDataLoss; ErrUnavailable.
func (s *Store) EndExec(ctx context.Context, execID string, end *storev1.ExecEnd) error {
	typ, ok := endEvents[agboxv1.ExecState(end.GetState())]
	if !ok {
		return fmt.Errorf("end exec %s: state %d is not terminal: %w", execID, end.GetState(), errdefs.ErrInvalidArgument)
	}
	end = proto.CloneOf(end)
	end.ErrorMessage = valid(end.GetErrorMessage())
	return s.update(ctx, func(t *txn) error { return t.endExec(execID, typ, end) })
}

func (t *txn) endExec(execID string, typ agboxv1.EventType, end *storev1.ExecEnd) error {
	id, err := t.sandboxOf(execID)
	if err != nil {
		return err
	}
	if get(t.tx, prefixExecStatus+id, []byte(execID)) != nil {
		return nil
	}
	sb, err := t.sandbox(id, execNotFound(execID))
	if err != nil {
		return err
	}
	sb.ActiveExecs = withoutID(sb.ActiveExecs, execID)
	ev := execEvent(typ, &agboxv1.ExecEventDetails{
		ExecId: execID, ExitCode: end.GetExitCode(), ExecState: agboxv1.ExecState(end.GetState()),
		ErrorCode: end.GetErrorCode(), ErrorMessage: end.GetErrorMessage(),
	})
	t.append(sb, ev)
	end.Sequence = ev.GetSequence()
	t.count(t.active(execID).caller, usage{execs: -1})
	t.changes.execs[execID] = activeExec{}
	t.keep(sb, execID)
	t.put(prefixExecStatus+id, execID, end)
	return nil
}
