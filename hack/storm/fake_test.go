package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// fakeAPI answers from fixed data. Undefined calls panic.
type fakeAPI struct {
	agboxv1.SandboxServiceClient
	sandboxes []*agboxv1.SandboxHandle
	execs     []string
	streams   []*fakeStream // one per subscription, then a canceled one
	lists     func() ([]*agboxv1.SandboxHandle, error)
}

func (f *fakeAPI) GetSandbox(_ context.Context, r *agboxv1.GetSandboxRequest, _ ...grpc.CallOption) (*agboxv1.GetSandboxResponse, error) {
	for _, sb := range f.sandboxes {
		if sb.GetSandboxId() == r.GetSandboxId() {
			return &agboxv1.GetSandboxResponse{Sandbox: sb}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (f *fakeAPI) GetExec(_ context.Context, r *agboxv1.GetExecRequest, _ ...grpc.CallOption) (*agboxv1.GetExecResponse, error) {
	for _, id := range f.execs {
		if id == r.GetExecId() {
			return &agboxv1.GetExecResponse{Exec: &agboxv1.ExecStatus{ExecId: id}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such exec")
}

func (f *fakeAPI) ListSandboxes(context.Context, *agboxv1.ListSandboxesRequest, ...grpc.CallOption) (*agboxv1.ListSandboxesResponse, error) {
	if f.lists == nil {
		return &agboxv1.ListSandboxesResponse{Sandboxes: f.sandboxes}, nil
	}
	list, err := f.lists()
	return &agboxv1.ListSandboxesResponse{Sandboxes: list}, err
}

func (f *fakeAPI) SubscribeSandboxEvents(context.Context, *agboxv1.SubscribeSandboxEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[agboxv1.SandboxEvent], error) {
	if len(f.streams) == 0 {
		return nil, status.Error(codes.Canceled, "no more streams")
	}
	next := f.streams[0]
	f.streams = f.streams[1:]
	return next, nil
}

// fakeStream sends events and ends with an error.
type fakeStream struct {
	grpc.ClientStream
	events []*agboxv1.SandboxEvent
	end    codes.Code
}

func (s *fakeStream) Recv() (*agboxv1.SandboxEvent, error) {
	if len(s.events) == 0 {
		return nil, status.Error(s.end, "the stream ends")
	}
	next := s.events[0]
	s.events = s.events[1:]
	return next, nil
}

// fakeCrew answers for at most one agent.
type fakeCrew struct {
	agboxv1.AgentServiceClient
	agent *agboxv1.AgentHandle
	turns []*agboxv1.ConversationTurn
}

func (f *fakeCrew) ListAgents(context.Context, *agboxv1.ListAgentsRequest, ...grpc.CallOption) (*agboxv1.ListAgentsResponse, error) {
	if f.agent == nil {
		return &agboxv1.ListAgentsResponse{}, nil
	}
	return &agboxv1.ListAgentsResponse{Agents: []*agboxv1.AgentHandle{f.agent}}, nil
}

func (f *fakeCrew) GetAgent(context.Context, *agboxv1.GetAgentRequest, ...grpc.CallOption) (*agboxv1.GetAgentResponse, error) {
	if f.agent == nil {
		return nil, status.Error(codes.NotFound, "no such agent")
	}
	return &agboxv1.GetAgentResponse{Agent: f.agent}, nil
}

func (f *fakeCrew) GetAgentConversation(context.Context, *agboxv1.GetAgentConversationRequest, ...grpc.CallOption) (*agboxv1.GetAgentConversationResponse, error) {
	return &agboxv1.GetAgentConversationResponse{Turns: f.turns}, nil
}

// wantProblem fails unless the only problem in the book contains want; if want is "", there must be none.
func (b *book) wantProblem(t *testing.T, want string) {
	t.Helper()
	got := b.problems
	if len(got) > 1 || (len(got) == 1) != (want != "") || !strings.Contains(strings.Join(got, ""), want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
