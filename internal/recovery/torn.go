package recovery

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// NeedsEngine reports whether the record alone must not be trusted: later changes of its sandbox, such as a stop, may be lost. A
// requested delete is final and needs no engine.
func (k Known) NeedsEngine() bool { return k.Torn && !k.isDeleted() }

func (k Known) isDeleted() bool {
	return k.Record.GetDesired().GetRunState() == storev1.RunState_RUN_STATE_DELETE
}

// fromTorn combines a record of a log that lost its end with the engine's objects. The engine decides the state and the desired
// state, as for a missing record. A sandbox that is at rest by its record, and does not run, keeps the record's state.
func (in Input) fromTorn(k Known, f Found, p parts, now time.Time) Sandbox {
	old := in.fromLog(k, now)
	r := in.begin(f, p, now)
	r.wasUp = wasUp(k.Record)
	r.useSpec(k.Record)
	rec := old.Record
	rec.Spec, rec.Desired.ToolMounts = r.spec, r.tools
	r.Source, r.Execs, r.Record = FromLog, old.Execs, rec
	r.guess(old.Defaulted...)
	if !r.rests(rec) {
		r.overrule(rec)
	}
	return r.Sandbox
}

// wasUp reports whether, by the record, the sandbox has been READY.
func wasUp(rec *storev1.SandboxRecord) bool {
	return rec.GetState() != int32(agboxv1.SandboxState_SANDBOX_STATE_PENDING) || rec.GetDesired().GetAttempt() == storev1.Attempt_ATTEMPT_RESUME
}

// useSpec uses the record's spec if the containers were created from it, or if that is unknown.
func (r *rebuild) useSpec(rec *storev1.SandboxRecord) {
	r.spec, r.tools = proto.CloneOf(rec.GetSpec()), rec.GetDesired().GetToolMounts()
	c := r.p.primary
	if c == nil {
		return
	}
	if known, hash := plan.SpecHash(r.spec), c.Labels[naming.SpecHash]; hash != known && sameVersion(hash, known) {
		r.tools = nil
		r.makeSpec()
		return
	}
	if r.limits(r.spec, c.Limits) {
		r.spec.CpuLimit, r.spec.MemoryLimit, r.spec.PidsLimit = limitFields(c.Limits)
		r.guess("updates")
	}
}

// rests reports whether the primary does not run, and rec is FAILED, or STOPPED is requested and the primary exists. Such a
// sandbox changes only by a start or a delete.
func (r *rebuild) rests(rec *storev1.SandboxRecord) bool {
	c := r.p.primary
	down := c == nil || c.State == dockerx.StateCreated || c.State == dockerx.StateExited
	switch {
	case !down:
		return false
	case rec.GetState() == int32(agboxv1.SandboxState_SANDBOX_STATE_FAILED):
		return true
	}
	return c != nil && rec.GetDesired().GetRunState() == storev1.RunState_RUN_STATE_STOP
}

// overrule sets the state and the desired state of rec from the engine. It keeps the rest of the desired state.
func (r *rebuild) overrule(rec *storev1.SandboxRecord) {
	v := r.judge()
	was, wasReady := rec.GetDesired(), rec.GetState() == int32(agboxv1.SandboxState_SANDBOX_STATE_READY)
	rec.State, rec.ErrorCode, rec.ErrorMessage = int32(v.state), v.code, v.message
	rec.Progress, rec.Preparing, rec.IdleSince = v.progress, v.attempt == storev1.Attempt_ATTEMPT_CREATE, 0
	rec.Desired = &storev1.Desired{
		RunState: v.want, Generation: was.GetGeneration(), Attempt: v.attempt, RequestedAt: r.now.UnixNano(), Name: was.GetName(),
		EngineRun: v.life, ToolMounts: r.tools, LimitsPending: was.GetLimitsPending(), DeadlineSet: was.GetDeadlineSet(),
		Rehydrated: was.GetRehydrated(), Confinement: was.GetConfinement(), Caller: was.GetCaller(),
	}
	if rec.Desired.Confinement == nil {
		rec.Desired.Confinement = r.confinement
	}
	if v.attempt == storev1.Attempt_ATTEMPT_CREATE { // runtime.interrupted_create counts from when it was accepted
		rec.Desired.RequestedAt = rec.GetCreatedAt()
	}
	if v.state == agboxv1.SandboxState_SANDBOX_STATE_READY {
		rec.Desired.DeadlineAt = r.in.deadline(r.spec, r.now)
		if wasReady || was.GetDeadlineAt() != 0 || was.GetDeadlineSet() {
			rec.Desired.DeadlineAt = was.GetDeadlineAt() // which is no earlier, or none
		}
		rec.IdleSince = r.idleSince()
	}
}

// lostEvents far exceeds the number of events that may follow the last readable record.
const lostEvents = 1 << 16

// stale returns a record after which newer ones may be missing: no event sequence is used twice, and no deadline expires
// before one that starts now.
func (in Input) stale(rec *storev1.SandboxRecord, now time.Time) *storev1.SandboxRecord {
	rec = proto.CloneOf(rec)
	rec.LastSequence = max(rec.GetLastSequence()+lostEvents, sequenceFloor(now))
	rec.StateChangedAt = now.UnixNano()
	d := rec.GetDesired()
	if at := d.GetDeadlineAt(); at != 0 {
		d.DeadlineAt, d.DeadlineFrom = later(at, in.deadline(rec.GetSpec(), now)), 0
	}
	return rec
}

// later returns the later of two deadlines, where 0 means none.
func later(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// guess adds fields that are not known for certain.
func (s *Sandbox) guess(fields ...string) {
	all := slices.Concat(s.Defaulted, fields)
	slices.Sort(all)
	s.Defaulted = slices.Compact(all)
}
