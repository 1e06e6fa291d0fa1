package cli

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// unfollowable has one sandbox whose events do not decode. Its second list ends the watch.
type unfollowable struct {
	agboxv1.UnimplementedSandboxServiceServer
	lists, subscriptions atomic.Int32
	enough               context.CancelFunc
}

func (s *unfollowable) ListSandboxes(context.Context, *agboxv1.ListSandboxesRequest) (*agboxv1.ListSandboxesResponse, error) {
	if s.lists.Add(1) == 2 {
		s.enough()
	}
	return &agboxv1.ListSandboxesResponse{Sandboxes: []*agboxv1.SandboxHandle{{SandboxId: "box1", LastEventSequence: 3}}}, nil
}

func (*unfollowable) GetSandbox(context.Context, *agboxv1.GetSandboxRequest) (*agboxv1.GetSandboxResponse, error) {
	return &agboxv1.GetSandboxResponse{Sandbox: &agboxv1.SandboxHandle{SandboxId: "box1", LastEventSequence: 3}}, nil
}

func (s *unfollowable) SubscribeSandboxEvents(*agboxv1.SubscribeSandboxEventsRequest, grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	s.subscriptions.Add(1)
	return status.Error(codes.DataLoss, "a stored record does not decode")
}

// A sandbox that can't be followed costs a watch one try with each list.
func TestAWatchDoesNotSubscribeInALoop(t *testing.T) {
	dir, err := os.MkdirTemp("", "") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	daemon, server := &unfollowable{enough: cancel}, grpc.NewServer()
	agboxv1.RegisterSandboxServiceServer(server, daemon)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	Run(ctx, []string{"get", "-w", "--host", l.Addr().String()}, "", Streams{Out: io.Discard, Err: io.Discard})
	if lists, n := daemon.lists.Load(), daemon.subscriptions.Load(); lists < 2 || n < 1 || n > lists {
		t.Errorf("%d subscriptions with %d lists", n, lists)
	}
}
