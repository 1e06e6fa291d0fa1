package store

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// olderHistory is what the events of a sandbox say. Events are added in order.
type olderHistory struct {
	last uint64
	// trimmed is the sequence before the first event after which none is missing.
	trimmed uint64
	// state is that of the last event that has one; its present run starts with event runStart.
	state     agboxv1.SandboxState
	runStart  uint64
	changedAt time.Time
	// wasReady: the sandbox was READY once.
	wasReady bool
	// attempt is that of the last accept; request is the last request after it, and reason its reason.
	attempt     storev1.Attempt
	request     agboxv1.EventType
	reason      string
	requestedAt time.Time
	services    map[string]storev1.ServiceMark
	execs       map[string]*olderExec
}

type olderExec struct {
	started   uint64
	startedAt int64
	end       *storev1.ExecEnd
}

func newOlderHistory() *olderHistory {
	return &olderHistory{services: map[string]storev1.ServiceMark{}, execs: map[string]*olderExec{}}
}

func (h *olderHistory) add(ev *agboxv1.SandboxEvent) {
	if ev.GetSequence() != h.last+1 {
		h.trimmed = ev.GetSequence() - 1
	}
	h.last = ev.GetSequence()
	before := h.state
	if beginsRun(ev, before) {
		h.state, h.runStart, h.changedAt = ev.GetSandboxState(), ev.GetSequence(), ev.GetOccurredAt().AsTime()
	}
	switch typ := ev.GetEventType(); typ {
	case agboxv1.EventType_SANDBOX_ACCEPTED:
		h.attempt = storev1.Attempt_ATTEMPT_CREATE
		if before != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED || h.trimmed > 0 {
			h.attempt = storev1.Attempt_ATTEMPT_RESUME
		}
		clear(h.services)
		h.asked(ev)
	case agboxv1.EventType_SANDBOX_STOP_REQUESTED, agboxv1.EventType_SANDBOX_DELETE_REQUESTED:
		h.asked(ev)
	case agboxv1.EventType_SANDBOX_READY:
		h.wasReady = true
	case agboxv1.EventType_SANDBOX_SERVICE_READY:
		h.services[ev.GetService().GetServiceName()] = storev1.ServiceMark_SERVICE_MARK_READY
	case agboxv1.EventType_SANDBOX_SERVICE_FAILED:
		h.services[ev.GetService().GetServiceName()] = storev1.ServiceMark_SERVICE_MARK_FAILED
	default:
		h.exec(ev)
	}
}

func (h *olderHistory) asked(ev *agboxv1.SandboxEvent) {
	h.request, h.reason, h.requestedAt = ev.GetEventType(), ev.GetSandboxPhase().GetReason(), ev.GetOccurredAt().AsTime()
}

func (h *olderHistory) exec(ev *agboxv1.SandboxEvent) {
	d := ev.GetExec()
	if !isExecEvent(ev.GetEventType()) || d.GetExecId() == "" {
		return
	}
	e := h.execs[d.GetExecId()]
	if e == nil {
		e = &olderExec{}
		h.execs[d.GetExecId()] = e
	}
	at := ev.GetOccurredAt().AsTime().UnixNano()
	if ev.GetEventType() == agboxv1.EventType_EXEC_STARTED {
		e.started, e.startedAt = ev.GetSequence(), at
		return
	}
	for state, typ := range endEvents {
		if typ == ev.GetEventType() && e.end == nil {
			e.end = &storev1.ExecEnd{
				State: int32(state), ExitCode: d.GetExitCode(), ErrorCode: d.GetErrorCode(), ErrorMessage: d.GetErrorMessage(),
				StartedAt: e.startedAt, EndedAt: at, Sequence: ev.GetSequence(),
			}
		}
	}
}

func (h *olderHistory) isDeleted() bool {
	return h.state == agboxv1.SandboxState_SANDBOX_STATE_DELETED
}

// creates reports a create that was cut off.
func (h *olderHistory) creates() bool {
	return h.state == agboxv1.SandboxState_SANDBOX_STATE_PENDING && h.attempt != storev1.Attempt_ATTEMPT_RESUME
}

// desired returns the intent that the last request expressed, as far as the state still waits for it.
func (h *olderHistory) desired(now time.Time) *storev1.Desired {
	d := &storev1.Desired{
		RunState: storev1.RunState_RUN_STATE_RUN, Generation: 1, Attempt: h.attempt, RequestedAt: h.requestedAt.UnixNano(),
		Adopted: &storev1.Adopted{At: now.UnixNano(), WasReady: h.wasReady},
	}
	if h.requestedAt.IsZero() {
		d.RequestedAt = now.UnixNano()
	}
	switch h.state {
	case agboxv1.SandboxState_SANDBOX_STATE_READY:
		if h.request == agboxv1.EventType_SANDBOX_STOP_REQUESTED {
			d.RunState, d.Reason = storev1.RunState_RUN_STATE_STOP, h.reason
		}
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		d.RunState, d.Reason = storev1.RunState_RUN_STATE_STOP, h.reason
	case agboxv1.SandboxState_SANDBOX_STATE_DELETING, agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		d.RunState, d.Reason = storev1.RunState_RUN_STATE_DELETE, h.reason
	}
	return d
}

// progress returns the progress of a sandbox that was READY: its hooks have run and its files are copied. A READY one has started every part:
// what is missing has gone since, and is not made again. nil: nothing has progressed.
func (h *olderHistory) progress(spec *agboxv1.CreateSpec) *storev1.Progress {
	if !h.wasReady {
		return nil
	}
	p := &storev1.Progress{Copied: len(spec.GetCopies()) > 0}
	for _, s := range spec.GetRequiredServices() {
		p.HooksDone += uint32(len(s.GetPostStartOnPrimary()))
	}
	if h.state == agboxv1.SandboxState_SANDBOX_STATE_PENDING {
		return p
	}
	p.PrimaryStarted, p.Released, p.Services = true, true, map[string]*storev1.ServiceProgress{}
	for _, s := range spec.GetRequiredServices() {
		p.Services[s.GetName()] = &storev1.ServiceProgress{Started: true, Mark: storev1.ServiceMark_SERVICE_MARK_READY}
	}
	for _, s := range spec.GetOptionalServices() {
		p.Services[s.GetName()] = &storev1.ServiceProgress{Started: true, Mark: h.services[s.GetName()]}
	}
	return p
}
