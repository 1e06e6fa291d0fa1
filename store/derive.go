package store

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var noTime time.Time

// isFailure reports whether ev gives the reason why sb, in its state after ev, is FAILED.
func isFailure(sb *Sandbox, ev *agboxv1.SandboxEvent) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED &&
		(ev.GetEventType() == agboxv1.EventType_SANDBOX_FAILED || isRebuilt(ev))
}

// isPreparing reports whether ev says that the create in progress has started to create objects. A create that goes on after a withdrawn verdict
// had.
func isPreparing(sb *Sandbox, ev *agboxv1.SandboxEvent) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING &&
		sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE &&
		(ev.GetEventType() == agboxv1.EventType_SANDBOX_PREPARING || ev.GetEventType() == agboxv1.EventType_SANDBOX_RECOVERED ||
			ev.GetRehydrated().GetPreparing())
}

// endsActivity reports whether ev restarts the idle clock.
func endsActivity(ev *agboxv1.SandboxEvent) bool {
	switch ev.GetEventType() {
	case agboxv1.EventType_SANDBOX_READY, agboxv1.EventType_SANDBOX_RESTARTED, agboxv1.EventType_SANDBOX_RECOVERED,
		agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED:
		return true
	}
	return false
}

func isExecEvent(t agboxv1.EventType) bool {
	switch t {
	case agboxv1.EventType_EXEC_STARTED, agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED,
		agboxv1.EventType_EXEC_CANCELLED:
		return true
	}
	return false
}

// isTransient reports whether the history limit may drop such events: nothing is derived from them after a while, and a sandbox can cause any
// number of them.
func isTransient(t agboxv1.EventType) bool {
	return isExecEvent(t) || t == agboxv1.EventType_NETWORK_DENIED
}

// isStoreEvent reports whether such events are written only with a change of intent or a rebuild of a record.
func isStoreEvent(t agboxv1.EventType) bool {
	switch t {
	case agboxv1.EventType_SANDBOX_SPEC_CHANGED, agboxv1.EventType_SANDBOX_TIMEOUT_SET, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED,
		agboxv1.EventType_SANDBOX_REHYDRATED:
		return true
	}
	return false
}

// beginsRun reports whether ev starts a run of a state; state is the one before ev. The event of a rebuilt record always starts one.
func beginsRun(ev *agboxv1.SandboxEvent, state agboxv1.SandboxState) bool {
	now := ev.GetSandboxState()
	return now != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED && (now != state || isRebuilt(ev))
}

func isRebuilt(ev *agboxv1.SandboxEvent) bool {
	return ev.GetEventType() == agboxv1.EventType_SANDBOX_REHYDRATED
}

// runSince returns the start time of the run that ev starts.
func runSince(ev *agboxv1.SandboxEvent) time.Time {
	return rebuiltOr(ev, ev.GetRehydrated().GetStateChangedAt())
}

// idleSince returns the start time of the idle clock that ev starts.
func idleSince(ev *agboxv1.SandboxEvent) time.Time {
	return rebuiltOr(ev, ev.GetRehydrated().GetIdleSince())
}

// rebuiltOr returns the time that the event of a rebuilt record carries, and that of any other event.
func rebuiltOr(ev *agboxv1.SandboxEvent, rebuilt *timestamppb.Timestamp) time.Time {
	return cmp.Or(rebuilt, ev.GetOccurredAt()).AsTime()
}

// failureOf returns the reason given by ev, for which isFailure holds.
func failureOf(ev *agboxv1.SandboxEvent) (code, message string) {
	if isRebuilt(ev) {
		return ev.GetRehydrated().GetErrorCode(), ev.GetRehydrated().GetErrorMessage()
	}
	return ev.GetSandboxPhase().GetErrorCode(), ev.GetSandboxPhase().GetErrorMessage()
}

// endEvents are the types of the events that end an exec, by its state.
var endEvents = map[agboxv1.ExecState]agboxv1.EventType{
	agboxv1.ExecState_EXEC_STATE_FINISHED:  agboxv1.EventType_EXEC_FINISHED,
	agboxv1.ExecState_EXEC_STATE_FAILED:    agboxv1.EventType_EXEC_FAILED,
	agboxv1.ExecState_EXEC_STATE_CANCELLED: agboxv1.EventType_EXEC_CANCELLED,
}

func fromNanos(n uint64) time.Time { return time.Unix(0, int64(n)).UTC() }
