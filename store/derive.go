package store

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var noTime time.Time

// isFailure reports whether ev says why sb, which is what it is after ev, is FAILED.
func isFailure(sb *Sandbox, ev *agboxv1.SandboxEvent) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && ev.GetEventType() == agboxv1.EventType_SANDBOX_FAILED
}

// isPreparing reports whether ev says that the create under way has begun to materialize.
func isPreparing(sb *Sandbox, ev *agboxv1.SandboxEvent) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING &&
		sb.Desired.GetAttempt() == storev1.Attempt_ATTEMPT_CREATE &&
		ev.GetEventType() == agboxv1.EventType_SANDBOX_PREPARING
}

// endsActivity reports whether the idle clock starts anew with ev.
func endsActivity(ev *agboxv1.SandboxEvent) bool {
	switch ev.GetEventType() {
	case agboxv1.EventType_SANDBOX_READY, agboxv1.EventType_SANDBOX_RESTARTED,
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

// endEvent is the type of the event that ends an exec in the given state.
func endEvent(state agboxv1.ExecState) (agboxv1.EventType, bool) {
	switch state {
	case agboxv1.ExecState_EXEC_STATE_FINISHED:
		return agboxv1.EventType_EXEC_FINISHED, true
	case agboxv1.ExecState_EXEC_STATE_FAILED:
		return agboxv1.EventType_EXEC_FAILED, true
	case agboxv1.ExecState_EXEC_STATE_CANCELLED:
		return agboxv1.EventType_EXEC_CANCELLED, true
	}
	return 0, false
}

func fromNanos(n uint64) time.Time { return time.Unix(0, int64(n)).UTC() }
