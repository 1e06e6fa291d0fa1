// Package server serves agbox.v1 over gRPC. A handler validates, writes intent to the store, and reads it back; it
// never creates or removes anything itself, and never waits for the engine. Every error leaves through one place,
// errors.go.
package server

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server/admission"
)

const (
	// maxRequestBytes fits the largest valid create: a spec of 1 MiB and a YAML text of 2 MiB. It is gRPC's default, on which
	// existing clients rely; intercept.go bounds the memory of the decoded request.
	maxRequestBytes = 4 << 20
	// maxStreams bounds the calls of one connection; one subscription for each sandbox must fit.
	maxStreams = 10_000
	// handshakeTimeout bounds the HTTP/2 handshake; a silent connection is closed.
	handshakeTimeout = 20 * time.Second
	// keepaliveLeast lets clients with keepalive set to 10 s, the common minimum, stay connected.
	keepaliveLeast = 5 * time.Second
)

// Server is the gRPC server of one daemon.
type Server struct {
	agboxv1.UnimplementedSandboxServiceServer
	agboxv1.UnimplementedAgentServiceServer
	agboxv1.UnimplementedAdminServiceServer

	deps     Deps
	grpc     *grpc.Server
	stopping context.Context // done when Shutdown begins
	stop     context.CancelFunc
	backups  atomic.Int32 // under way
	reading  chan struct{}
	gate     *admission.Gate
}

// New returns a server that is not yet serving.
func New(d Deps) *Server {
	s := &Server{deps: d, reading: make(chan struct{}, readers), gate: newGate()}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveLeast, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream),
		s.gate.Codec(),
	)
	for _, desc := range []grpc.ServiceDesc{
		agboxv1.SandboxService_ServiceDesc, agboxv1.AgentService_ServiceDesc, agboxv1.AdminService_ServiceDesc,
	} {
		s.grpc.RegisterService(s.gate.Limit(desc, s.refuse), s)
	}
	return s
}

// Serve answers on l until Shutdown, which makes it return nil. It closes l. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown stops accepting, ends open streams with UNAVAILABLE and waits for the open calls. When ctx ends first, it cuts off the calls that
// are left, such as a stream whose client does not read, and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.grpc.GracefulStop()
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	s.grpc.Stop()
	<-drained
	return ctx.Err()
}

// whileServing runs a call with a context that ends when the server stops; then its error is errStopping.
func (s *Server) whileServing(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(errStopping) })()
	err := run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}
