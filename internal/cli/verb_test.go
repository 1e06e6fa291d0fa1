package cli

import (
	"bytes"
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// scripted is a daemon with a function per method.
type scripted struct {
	grpc.ClientConnInterface
	answers map[string]func(req any) (proto.Message, error)
}

func (s scripted) Invoke(_ context.Context, method string, req, reply any, _ ...grpc.CallOption) error {
	answer, ok := s.answers[method]
	if !ok {
		return status.Error(codes.Unimplemented, method)
	}
	resp, err := answer(req)
	if err == nil {
		proto.Merge(reply.(proto.Message), resp)
	}
	return err
}

func (s scripted) app() (a *app, out *bytes.Buffer) {
	out = &bytes.Buffer{}
	return &app{
		Streams: Streams{Out: out, Err: io.Discard}, notes: &notes{out: io.Discard}, conn: func() *client.Client { return client.New(s) },
	}, out
}

// deletes lists sandboxes named a, b and c. The delete of b fails.
func deletes(code codes.Code) scripted {
	return scripted{answers: map[string]func(any) (proto.Message, error){
		agboxv1.AgentService_ListAgents_FullMethodName: func(any) (proto.Message, error) { return &agboxv1.ListAgentsResponse{}, nil },
		agboxv1.SandboxService_ListSandboxes_FullMethodName: func(any) (proto.Message, error) {
			return &agboxv1.ListSandboxesResponse{Sandboxes: []*agboxv1.SandboxHandle{{SandboxId: "a"}, {SandboxId: "b"}, {SandboxId: "c"}}}, nil
		},
		agboxv1.SandboxService_DeleteSandbox_FullMethodName: func(req any) (proto.Message, error) {
			if req.(*agboxv1.DeleteSandboxRequest).GetSandboxId() == "b" {
				return nil, status.Error(code, "not this one")
			}
			return &agboxv1.AcceptedResponse{Accepted: true}, nil
		},
	}}
}

func TestAcceptedRequestsArePrintedBeforeTheErrorThatEndsThem(t *testing.T) {
	a, out := deletes(codes.Unavailable).app()
	err := a.deleteNamed(t.Context(), []string{"a", "b", "c"}, deleteOptions{})
	if want := "sandbox/a deleting\n"; !client.IsUnavailable(err) || out.String() != want {
		t.Errorf("got %v, printed %q, want %q", err, out.String(), want)
	}
}

func TestDeleteByLabelsToleratesAPurge(t *testing.T) {
	a, out := deletes(codes.NotFound).app()
	err := a.deleteMatching(t.Context(), deleteOptions{verbOptions: verbOptions{labels: &selector{}}, keepAgents: true})
	if want := "sandbox/a deleting\nsandbox/b deleting\nsandbox/c deleting\n"; err != nil || out.String() != want {
		t.Errorf("got %v, printed %q, want %q", err, out.String(), want)
	}
}
