package server

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// isOlder reports whether the caller does not declare that it knows enum values from agboxv1.FirstAddition up.
func isOlder(ctx context.Context) bool {
	for _, v := range metadata.ValueFromIncomingContext(ctx, agboxv1.ContractKey) {
		if n, err := strconv.Atoi(v); err == nil && n >= agboxv1.FirstAddition {
			return false
		}
	}
	return true
}

// olderStream sends only what an older client knows. A dropped event keeps its sequence, so the client sees a gap.
type olderStream struct{ grpc.ServerStream }

func (s olderStream) SendMsg(m any) error {
	if e, ok := m.(*agboxv1.SandboxEvent); ok && e.GetEventType() >= agboxv1.FirstAddition {
		return nil
	}
	showOlder(m)
	return s.ServerStream.SendMsg(m)
}

// showOlder replaces the states in a response that older clients do not know. The response must be the caller's own.
func showOlder(m any) {
	switch m := m.(type) {
	case interface {
		GetSandbox() *agboxv1.SandboxHandle
	}:
		showOlderHandle(m.GetSandbox())
	case *agboxv1.ListSandboxesResponse:
		for _, h := range m.GetSandboxes() {
			showOlderHandle(h)
		}
	case *agboxv1.GetStatsResponse:
		for _, s := range m.GetSandboxes() {
			s.State = olderState(s.GetState(), false)
		}
	case *agboxv1.SandboxEvent:
		m.SandboxState = olderState(m.GetSandboxState(), m.GetEventType() == agboxv1.EventType_SANDBOX_STOP_REQUESTED)
	case *agboxv1.ExplainResponse:
		m.State = olderState(m.GetState(), m.GetDesired() == "stop")
	}
}

func showOlderHandle(h *agboxv1.SandboxHandle) {
	if h != nil {
		h.State = olderState(h.GetState(), h.GetDesiredState() == "stopped")
	}
}

// olderState is the state of a sandbox in the older contract. A PAUSED sandbox is like a STOPPED one: a resume runs it again, and execs
// are refused. While it is being stopped it is like a READY one that is being stopped: SANDBOX_STOPPED follows, and a resume is refused
// until then.
func olderState(state agboxv1.SandboxState, stopping bool) agboxv1.SandboxState {
	switch {
	case state != agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		return state
	case stopping:
		return agboxv1.SandboxState_SANDBOX_STATE_READY
	}
	return agboxv1.SandboxState_SANDBOX_STATE_STOPPED
}
