package client_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// flaky loses the answers of the first two calls.
type flaky struct {
	agboxv1.UnimplementedSandboxServiceServer
	calls *atomic.Int32
}

func newFlaky(t testing.TB, l net.Listener) (calls *atomic.Int32) {
	f := flaky{calls: &atomic.Int32{}}
	server := grpc.NewServer()
	agboxv1.RegisterSandboxServiceServer(server, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the test
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return f.calls
}

func (f flaky) lose() error {
	if f.calls.Add(1) < 3 {
		return status.Error(codes.Unavailable, "the connection broke")
	}
	return nil
}

func (f flaky) Ping(context.Context, *agboxv1.PingRequest) (*agboxv1.PingResponse, error) {
	return &agboxv1.PingResponse{Version: "flaky"}, f.lose()
}

func (f flaky) CreateSandbox(context.Context, *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	return &agboxv1.CreateSandboxResponse{}, f.lose()
}
