package client_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// lifetimes answers what a test wants, and keeps what it was asked.
type lifetimes struct {
	agboxv1.UnimplementedSandboxServiceServer
	asked  *agboxv1.SetSandboxTimeoutRequest
	answer *agboxv1.SetSandboxTimeoutResponse
}

func (l *lifetimes) SetSandboxTimeout(_ context.Context, req *agboxv1.SetSandboxTimeoutRequest) (*agboxv1.SetSandboxTimeoutResponse, error) {
	l.asked = req
	return l.answer, nil
}

func (l *lifetimes) PauseSandbox(context.Context, *agboxv1.PauseSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	st, err := status.New(codes.FailedPrecondition, "sandbox abcd is already paused").
		WithDetails(&errdetails.ErrorInfo{Domain: "agents-sandbox", Reason: "SANDBOX_ALREADY_PAUSED"})
	if err != nil {
		return nil, err
	}
	return nil, st.Err()
}

func serveLifetimes(t *testing.T) (*lifetimes, *client.Client) {
	t.Helper()
	s := &lifetimes{}
	return s, serveSandboxes(t, s)
}

func serveSandboxes(t *testing.T, s agboxv1.SandboxServiceServer) *client.Client {
	t.Helper()
	return serve(t, client.Options{}, func(to grpc.ServiceRegistrar) { agboxv1.RegisterSandboxServiceServer(to, s) })
}

// serve returns a client of a server with these services.
func serve(t *testing.T, o client.Options, register func(grpc.ServiceRegistrar)) *client.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	register(server)
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the test
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	c, err := client.DialWith(socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSetSandboxTimeoutSaysExactlyOneTime(t *testing.T) {
	s, c := serveLifetimes(t)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	after := func(d time.Duration) *agboxv1.SetSandboxTimeoutRequest {
		return &agboxv1.SetSandboxTimeoutRequest{When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(d)}}
	}
	absolute := &agboxv1.SetSandboxTimeoutRequest{When: &agboxv1.SetSandboxTimeoutRequest_DeadlineAt{DeadlineAt: timestamppb.New(at)}, OnlyExtend: true}
	for name, tc := range map[string]struct {
		timeout client.Timeout
		want    *agboxv1.SetSandboxTimeoutRequest
		answer  *agboxv1.SetSandboxTimeoutResponse
	}{
		"a duration":           {client.Timeout{After: time.Hour}, after(time.Hour), &agboxv1.SetSandboxTimeoutResponse{DeadlineAt: timestamppb.New(at), Changed: true}},
		"never":                {client.Timeout{}, after(0), &agboxv1.SetSandboxTimeoutResponse{Changed: true}},
		"a time wins":          {client.Timeout{After: time.Hour, At: at, OnlyExtend: true}, absolute, &agboxv1.SetSandboxTimeoutResponse{DeadlineAt: timestamppb.New(at)}},
		"only extending never": {client.Timeout{At: at, OnlyExtend: true}, absolute, &agboxv1.SetSandboxTimeoutResponse{}},
	} {
		s.answer, tc.want.SandboxId = tc.answer, "abcd"
		deadline, changed, err := c.SetSandboxTimeout(t.Context(), "abcd", tc.timeout)
		if err != nil || !proto.Equal(s.asked, tc.want) {
			t.Errorf("%s: asked %v, want %v; error %v", name, s.asked, tc.want, err)
		}
		wantDeadline := time.Time{}
		if tc.answer.DeadlineAt != nil {
			wantDeadline = at
		}
		if !deadline.Equal(wantDeadline) || changed != tc.answer.GetChanged() {
			t.Errorf("%s: got %s, %v", name, deadline, changed)
		}
	}
}

func TestRefusedPauseHasItsReason(t *testing.T) {
	_, c := serveLifetimes(t)
	err := c.PauseSandbox(t.Context(), "abcd")
	if !client.IsAlreadyPaused(err) || !client.IsFailedPrecondition(err) {
		t.Errorf("got %v", err)
	}
}
