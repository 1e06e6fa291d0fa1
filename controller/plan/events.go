package plan

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// Error codes of SANDBOX_FAILED.
const (
	CodeCreateFailed        = "SANDBOX_CREATE_FAILED"
	CodeResumeFailed        = "SANDBOX_RESUME_FAILED"
	CodeContainerDied       = "CONTAINER_DIED"
	CodeContainerOOM        = "CONTAINER_OOM"
	CodeContainerNotRunning = "CONTAINER_NOT_RUNNING"
	CodeContainerMissing    = "CONTAINER_MISSING"
	CodeNetworkMissing      = "NETWORK_MISSING"
	// CodeServiceFailed is used by SANDBOX_SERVICE_FAILED only.
	CodeServiceFailed = "SANDBOX_SERVICE_FAILED"
)

// phase returns an event about the sandbox as a whole, which leads to one state.
func phase(t agboxv1.EventType, reason string) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{
		EventType:    t,
		SandboxState: sandboxstate.After(t),
		Details:      &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{Reason: reason}},
	}
}

// Failed returns the event that makes a sandbox FAILED.
func Failed(code, message string) *agboxv1.SandboxEvent {
	e := phase(agboxv1.EventType_SANDBOX_FAILED, "")
	e.GetSandboxPhase().ErrorCode, e.GetSandboxPhase().ErrorMessage = code, message
	return e
}

func preparing() *agboxv1.SandboxEvent {
	e := phase(agboxv1.EventType_SANDBOX_PREPARING, "")
	e.GetSandboxPhase().Phase = "materialize"
	return e
}

// FailureCode returns the error code of a failed attempt to start a sandbox, by the state that the attempt was to reach.
func FailureCode(r Record) string {
	switch {
	case r.State == agboxv1.SandboxState_SANDBOX_STATE_READY:
		return CodeContainerNotRunning
	case r.Attempt == storev1.Attempt_ATTEMPT_RESUME:
		return CodeResumeFailed
	}
	return CodeCreateFailed
}

// aboutService returns an event about one service.
func aboutService(t agboxv1.EventType, state agboxv1.SandboxState, d *agboxv1.ServiceEventDetails) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventType: t, SandboxState: state, Details: &agboxv1.SandboxEvent_Service{Service: d}}
}

func serviceReady(name string, state agboxv1.SandboxState) *agboxv1.SandboxEvent {
	return aboutService(agboxv1.EventType_SANDBOX_SERVICE_READY, state, &agboxv1.ServiceEventDetails{ServiceName: name})
}

func serviceFailed(name string, state agboxv1.SandboxState, f fall) *agboxv1.SandboxEvent {
	return aboutService(agboxv1.EventType_SANDBOX_SERVICE_FAILED, state,
		&agboxv1.ServiceEventDetails{ServiceName: name, ErrorCode: f.code, ErrorMessage: f.text})
}
