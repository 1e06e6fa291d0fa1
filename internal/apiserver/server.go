// Package apiserver serves agbox.v1 over gRPC. A handler validates, writes intent to the store, and reads it back; it
// never creates or removes anything itself, and never waits for the engine. Every error leaves through one place,
// errors.go.
package apiserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

// Store is what the server needs of the store.
type Store interface {
	InstanceID() string
	CheckCreate(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, without string) error
	CreateSandbox(ctx context.Context, id, name string, spec *agboxv1.CreateSpec, tools []*storev1.ToolMount) (store.Sandbox, error)
	UpdateSpec(ctx context.Context, id string, change store.SpecChange) (sb store.Sandbox, changed []string, err error)
	RequestStop(ctx context.Context, id, reason string) (changed bool, err error)
	RequestResume(ctx context.Context, id string) (changed bool, err error)
	RequestDelete(ctx context.Context, id, reason string) (changed bool, err error)
	RequestDeleteMatching(ctx context.Context, selector map[string]string, reason string) (ids []string, err error)
	CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (store.Exec, error)
	RequestCancel(ctx context.Context, execID string) (changed bool, err error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	Exec(ctx context.Context, execID string) (store.Exec, error)
	ActiveExecs(sandboxID string) []string
	Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error)
	EventsAfter(ctx context.Context, id string, c store.Cursor, limit int) ([]*agboxv1.SandboxEvent, error)
	Watch(id string) (changed <-chan struct{}, stop func())
}

// Deps is what a Server is made of. Store and Logs are required.
type Deps struct {
	Store Store
	// Logs names the host paths of an exec's logs. It must not touch the disk.
	Logs func(sandboxID, execID string) (stdout, stderr string)
	// MainLogs names the host paths of what a sandbox's main process prints. It must not touch the disk. Nil: not known.
	MainLogs func(sandboxID string) (stdout, stderr string)
	// Status says what the daemon is doing for a sandbox, or "". It must not block.
	Status func(sandboxID string) string
	// Ports are the published ports of a sandbox as they are now. It must not block.
	Ports func(sandboxID string) []*agboxv1.PublishedPort
	// EngineRefuses says what of a valid spec the engine cannot honour. It must not block: the answer may be of a while
	// ago. Nil: nothing.
	EngineRefuses func(*agboxv1.CreateSpec) validate.Errors
	// Engine says in one sentence what is wrong with the engine, or "". It must not block.
	Engine func() string
	// ConfirmEngine accepts the engine as the right one and returns its ID.
	ConfirmEngine func(ctx context.Context) (engineID string, err error)
	// Backup writes a backup to w. Nil: there are none.
	Backup func(ctx context.Context, w io.Writer, withLogs bool) error
	// Version is what Ping answers.
	Version string
	// Home is what "~" stands for in config_yaml and in the paths of built-in tools: the home of the daemon's user.
	Home string
	// Getenv is the environment in which built-in tools are found; nil: os.Getenv.
	Getenv func(string) string
	// Logger; nil: slog.Default().
	Logger *slog.Logger
	// Observe is called once per finished call. method is the full name, of a closed set.
	Observe func(method string, code codes.Code, d time.Duration)
	// OnPanic is called for each panic that was recovered.
	OnPanic func(method string)
}

func (d Deps) withDefaults() Deps {
	if d.Status == nil {
		d.Status = func(string) string { return "" }
	}
	if d.MainLogs == nil {
		d.MainLogs = func(string) (string, string) { return "", "" }
	}
	if d.Ports == nil {
		d.Ports = func(string) []*agboxv1.PublishedPort { return nil }
	}
	if d.EngineRefuses == nil {
		d.EngineRefuses = func(*agboxv1.CreateSpec) validate.Errors { return nil }
	}
	if d.Getenv == nil {
		d.Getenv = os.Getenv
	}
	if d.Engine == nil {
		d.Engine = func() string { return "" }
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.Observe == nil {
		d.Observe = func(string, codes.Code, time.Duration) {}
	}
	if d.OnPanic == nil {
		d.OnPanic = func(string) {}
	}
	return d
}

const (
	// maxRequestBytes holds the largest valid create: a spec, and a YAML text.
	maxRequestBytes = 4 << 20
	// maxStreams bounds the calls of one connection; one subscription for each sandbox must fit.
	maxStreams = 10_000
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
	agboxv1.UnimplementedAdminServiceServer

	deps     Deps
	grpc     *grpc.Server
	stopping chan struct{}
	stopOnce sync.Once
	unary    inflight
	backups  atomic.Int32 // under way
}

// New returns a server that is not yet serving.
func New(d Deps) *Server {
	s := &Server{deps: d.withDefaults(), stopping: make(chan struct{})}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveLeast, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream),
	)
	agboxv1.RegisterSandboxServiceServer(s.grpc, s)
	agboxv1.RegisterAdminServiceServer(s.grpc, s)
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
	s.stopOnce.Do(func() { close(s.stopping) })
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-drained:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	case <-timer.C:
		return false, nil
	}
}

// inflight counts unary calls.
type inflight struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (f *inflight) add(delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += delta
	if f.n == 0 && f.zero != nil {
		close(f.zero)
		f.zero = nil
	}
}

// idle returns a channel that is closed once no call is open.
func (f *inflight) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.zero == nil {
		f.zero = make(chan struct{})
	}
	zero := f.zero
	if f.n == 0 {
		close(f.zero)
		f.zero = nil
	}
	return zero
}
