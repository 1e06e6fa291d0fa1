// Package server serves agbox.v1 over gRPC. A handler validates, writes intent to the store, and reads it back; it
// never creates or removes anything itself, and never waits for the engine. Every error leaves through one place,
// errors.go.
package server

import (
	"context"
	"errors"
	"net"
	"sync"
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
	// streamGrace is how long a stopping server waits for streams whose client does not read, and flushGrace how long
	// it lets the last answers of unary calls reach their clients beside such a stream. A second together.
	streamGrace = 700 * time.Millisecond
	flushGrace  = 300 * time.Millisecond
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
	unary    inflight     // read-locked by each unary call
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

// Shutdown stops accepting, ends open streams with UNAVAILABLE and waits for unary calls, which have deadlines. A
// stream whose client does not read delays it by at most a second. When ctx ends first, everything is cut off and its
// error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.grpc.GracefulStop()
	}()
	err := s.awaitDrain(ctx, drained)
	s.grpc.Stop()
	<-drained
	return err
}

// awaitDrain returns once nothing that counts is open: all calls, or after the grace period all unary ones.
func (s *Server) awaitDrain(ctx context.Context, drained <-chan struct{}) error {
	if done, err := within(ctx, drained, streamGrace); done {
		return err
	}
	select {
	case <-s.unary.idle(): // their answers may still be on the way out
		_, err := within(ctx, drained, flushGrace)
		return err
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// within waits for drained or ctx, for d at most. done is false when the time was up first.
func within(ctx context.Context, drained <-chan struct{}, d time.Duration) (done bool, err error) {
	select {
	case <-drained:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	case <-time.After(d):
		return false, nil
	}
}

// inflight counts unary calls. A call may arrive while another goroutine waits for the last one: it counts, and waits for nothing.
type inflight struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (f *inflight) add(delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += delta
	f.wake()
}

// idle returns a channel that is closed once no call is open.
func (f *inflight) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.zero == nil {
		f.zero = make(chan struct{})
	}
	zero := f.zero
	f.wake()
	return zero
}

// wake closes zero if no call is open. The caller holds mu.
func (f *inflight) wake() {
	if f.n == 0 && f.zero != nil {
		close(f.zero)
		f.zero = nil
	}
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
