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
	// maxStreams bounds the open streams of one connection; one subscription for each sandbox must fit. maxAllStreams bounds those of all: each
	// takes some 20 KiB, with its client's end.
	maxStreams    = 10_000
	maxAllStreams = 20_000
	// maxCalls is gRPC's own bound of the calls of one connection, streams included: beyond it calls wait in the client.
	maxCalls = maxStreams + 1000
	// handshakeTimeout bounds the HTTP/2 handshake; a silent connection is closed.
	handshakeTimeout = 20 * time.Second
	// keepaliveLeast lets clients with keepalive set to 10 s, the common minimum, stay connected.
	keepaliveLeast = 5 * time.Second
)

// Server is the gRPC server of one daemon.
type Server struct {
	*lifecycle
	deps Deps
	grpc *grpc.Server
	gate *admission.Gate
	open atomic.Int64 // streams
	// The constants, except in tests.
	maxStreams, maxAllStreams int64
}

// Each service is made of groups of handlers, which declare what they need of the store. A call without a handler does not compile.
type (
	sandboxService struct {
		agboxv1.UnsafeSandboxServiceServer
		*specs
		*sandboxes
		*lifetimes
		*execs
		*events
		*serviceLogs
		*volumes
		*snapshots
		*stats
		*netActivity
	}
	agentService struct {
		agboxv1.UnsafeAgentServiceServer
		*agents
		*prompts
		*conversations
		*agentFeeds
	}
	streamService struct {
		agboxv1.UnsafeStreamServiceServer
		*attaches
		*execLogs
		*sandboxLogs
		*tunnels
	}
	gatewayService struct {
		agboxv1.UnsafeGatewayServiceServer
		*gateways
	}
	adminService struct {
		agboxv1.UnsafeAdminServiceServer
		*admin
	}
)

// New returns a server that is not yet serving.
func New(d Deps) *Server {
	s := &Server{lifecycle: newLifecycle(), deps: d, gate: newGate(), maxStreams: maxStreams, maxAllStreams: maxAllStreams}
	s.grpc = grpc.NewServer(
		grpc.Creds(callers{}),
		grpc.MaxRecvMsgSize(agboxv1.MaxRequestBytes), // intercept.go bounds the memory of the decoded request
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.StaticStreamWindowSize(agboxv1.StreamWindow), grpc.StaticConnWindowSize(agboxv1.ConnWindow), grpc.ReadBufferSize(agboxv1.IOBuffer), grpc.WriteBufferSize(agboxv1.IOBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveLeast, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream),
		s.gate.Codec(),
	)
	h := &handles{
		status: d.Status, ports: d.Ports, nameless: d.Nameless, startWarning: d.StartWarning, networkProblem: d.NetworkProblem, engineRefuses: d.EngineRefuses, connected: d.Streams.Connected, secretProblems: d.SecretProblems, diskWarnings: d.DiskWarnings, mainLogs: d.MainLogs, rules: d.Rules, defaultTimeout: d.DefaultTimeout,
	}
	services := &serviceLogs{store: d.Store, update: d.ServiceLog}
	exec := &execs{store: d.Store, callerLimits: d.CallerLimits, logs: d.Logs}
	ah := &agentHandles{store: d.Store, status: d.AgentStatus}
	register := func(desc grpc.ServiceDesc, handlers any) {
		s.grpc.RegisterService(s.gate.Limit(desc, s.refuse), handlers)
	}
	register(agboxv1.SandboxService_ServiceDesc, agboxv1.SandboxServiceServer(sandboxService{
		specs:       &specs{handles: h, store: d.Store, callerLimits: d.CallerLimits, home: d.Home},
		sandboxes:   &sandboxes{handles: h, store: d.Store, engine: d.Engine, gateways: d.Gateways, version: d.Version},
		lifetimes:   &lifetimes{handles: h, store: d.Store, explain: d.Explain, freezeRefusal: d.FreezeRefusal, now: d.Now},
		execs:       exec,
		events:      &events{lifecycle: s.lifecycle, store: d.Store},
		serviceLogs: services,
		volumes:     &volumes{list: d.Volumes, remove: d.RemoveVolume},
		snapshots:   &snapshots{create: d.CreateSnapshot, list: d.Snapshots, remove: d.RemoveSnapshot},
		stats:       &stats{read: d.Stats, now: d.Now},
		netActivity: &netActivity{read: d.NetworkActivity},
	}))
	register(agboxv1.AgentService_ServiceDesc, agboxv1.AgentServiceServer(agentService{
		agents:        &agents{agentHandles: ah, store: d.Store},
		prompts:       &prompts{store: d.Store},
		conversations: &conversations{lifecycle: s.lifecycle, store: d.Store, reading: make(chan struct{}, readers)},
		agentFeeds:    &agentFeeds{lifecycle: s.lifecycle, handles: h, agentHandles: ah, store: d.Store},
	}))
	streams := countedStreams{Streams: d.Streams, channels: d.Channels, opened: d.Opened}
	w := &workers{store: d.Store, streams: streams, open: map[string]*openStreams{}}
	logs := &execLogs{lifecycle: s.lifecycle, store: d.Store, outputs: d.Outputs}
	register(agboxv1.StreamService_ServiceDesc, agboxv1.StreamServiceServer(streamService{
		attaches: &attaches{execLogs: logs, store: d.Store, channels: streams, status: exec.execStatus, writers: d.Writers},
		execLogs: logs, sandboxLogs: &sandboxLogs{execLogs: logs, services: services, read: d.ServiceOutput},
		tunnels: &tunnels{lifecycle: s.lifecycle, workers: w},
	}))
	register(agboxv1.FileService_ServiceDesc, agboxv1.FileServiceServer(&files{lifecycle: s.lifecycle, workers: w, archives: countedArchives(d.Archives, d.Opened)}))
	register(agboxv1.GatewayService_ServiceDesc, agboxv1.GatewayServiceServer(gatewayService{gateways: &gateways{store: d.Store}}))
	register(agboxv1.TemplateService_ServiceDesc, agboxv1.TemplateServiceServer(&templates{lifecycle: s.lifecycle, keeper: d.Templates}))
	register(agboxv1.AdminService_ServiceDesc, agboxv1.AdminServiceServer(adminService{admin: &admin{
		lifecycle: s.lifecycle, agents: d.Store, confirmEngine: d.ConfirmEngine, collectGarbage: d.CollectGarbage, explain: d.Explain,
		explainAgent: d.ExplainAgent, doctor: d.Doctor, attackTargets: d.AttackTargets, drainer: d.Drainer, drainWait: d.DrainWait, backup: d.Backup,
	}}))
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
		s.helpers.Wait()
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

// lifecycle ends long calls when the server stops.
type lifecycle struct {
	stopping context.Context // done when Shutdown begins
	stop     context.CancelFunc
	helpers  sync.WaitGroup // goroutines of streams, which end with their streams
}

// goes runs f in a goroutine that Shutdown waits for. f must end when the stream of its call does.
func (l *lifecycle) goes(f func()) { l.helpers.Go(f) }

func newLifecycle() *lifecycle {
	l := &lifecycle{}
	l.stopping, l.stop = context.WithCancel(context.Background())
	return l
}

// whileServing runs a call with a context that ends when the server stops; then its error is errStopping.
func (l *lifecycle) whileServing(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.stopping, func() { cancel(errStopping) })()
	err := run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}
