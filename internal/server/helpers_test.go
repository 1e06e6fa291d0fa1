package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/server/servertest"
	"github.com/agbox/agbox/store"
)

// fixture is a server on a real store, and a client of it.
type fixture struct {
	agboxv1.SandboxServiceClient
	admin    agboxv1.AdminServiceClient
	agents   agboxv1.AgentServiceClient
	older    grpc.ClientConnInterface // declares no contract
	declared grpc.ClientConnInterface
	t        testing.TB
	store    *store.Store
	server   *server.Server
	shutdown func(context.Context) error
	mu       sync.Mutex
	seen     map[string]codes.Code
}

func newFixture(t testing.TB, change ...func(*server.Deps)) *fixture {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ids.db"), InitialMmapSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, store: st, seen: map[string]codes.Code{}}
	deps := servertest.Deps(st)
	deps.Version, deps.Home, deps.Observe = "v1", "/home/u", f.observe
	deps.Logs = func(sandboxID, execID string) (string, string) {
		return "/logs/" + sandboxID + "/" + execID + ".out", "/logs/" + sandboxID + "/" + execID + ".err"
	}
	for _, fn := range change {
		fn(&deps)
	}
	f.server = server.New(deps)
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Windows that grow by themselves would be the client's memory in tests that look at the daemon's.
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(16<<20),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	f.older, f.declared = conn, agboxv1.Declare(conn)
	f.SandboxServiceClient, f.admin = agboxv1.NewSandboxServiceClient(f.declared), agboxv1.NewAdminServiceClient(f.declared)
	f.agents = agboxv1.NewAgentServiceClient(f.declared)
	f.shutdown = f.server.Shutdown
	t.Cleanup(func() {
		_ = conn.Close()
		if err := f.server.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return f
}

func (f *fixture) observe(method string, code codes.Code, _ time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[method] = code
}

// create makes a sandbox and brings it to a state.
func (f *fixture) create(id string, state agboxv1.SandboxState) {
	f.t.Helper()
	_, err := f.CreateSandbox(f.t.Context(), &agboxv1.CreateSandboxRequest{
		SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: "x", Labels: map[string]string{"id": id}},
	})
	f.must(err)
	switch state {
	case agboxv1.SandboxState_SANDBOX_STATE_READY:
		f.report(id, state)
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		f.report(id, agboxv1.SandboxState_SANDBOX_STATE_READY)
		_, err := f.StopSandbox(f.t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
		f.must(err)
		f.report(id, state)
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		f.report(id, state)
	case agboxv1.SandboxState_SANDBOX_STATE_DELETING, agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		_, err := f.DeleteSandbox(f.t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: id})
		f.must(err)
		if state == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
			f.report(id, state)
		}
	}
}

// report writes the event that leads to a state.
func (f *fixture) report(id string, state agboxv1.SandboxState) {
	f.t.Helper()
	kind := map[agboxv1.SandboxState]agboxv1.EventType{
		agboxv1.SandboxState_SANDBOX_STATE_READY: agboxv1.EventType_SANDBOX_READY, agboxv1.SandboxState_SANDBOX_STATE_FAILED: agboxv1.EventType_SANDBOX_FAILED,
		agboxv1.SandboxState_SANDBOX_STATE_STOPPED: agboxv1.EventType_SANDBOX_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_DELETED: agboxv1.EventType_SANDBOX_DELETED,
		agboxv1.SandboxState_SANDBOX_STATE_PAUSED: agboxv1.EventType_SANDBOX_PAUSED,
	}[state]
	sb, err := f.store.Sandbox(f.t.Context(), id)
	f.must(err)
	e := &agboxv1.SandboxEvent{EventType: kind, SandboxState: state}
	if state == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		e.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: "CONTAINER_DIED", ErrorMessage: "it died"}}
	}
	f.must(f.store.Report(f.t.Context(), id, store.Report{Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{e}}))
}

func (f *fixture) exec(sandboxID, execID string) {
	f.t.Helper()
	_, err := f.CreateExec(f.t.Context(), &agboxv1.CreateExecRequest{SandboxId: sandboxID, ExecId: execID, Command: []string{"true"}})
	f.must(err)
}

func (f *fixture) endExec(execID string) {
	f.t.Helper()
	f.must(f.store.EndExec(f.t.Context(), execID, &storev1.ExecEnd{
		State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ExitCode: 7, ErrorCode: "EXEC_RUN_FAILED", ErrorMessage: "exit code 7", StartedAt: 1, EndedAt: 2,
	}))
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// refused checks code, reason, message and metadata of an error.
func refused(t testing.TB, err error, code codes.Code, reason, message string, metadata map[string]string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code || st.Message() != message {
		t.Errorf("got %s: %q, want %s: %q", st.Code(), st.Message(), code, message)
	}
	info := errorInfo(err)
	if info == nil {
		t.Errorf("no ErrorInfo in %v", err)
		return
	}
	if info.GetReason() != reason || info.GetDomain() != "agents-sandbox" {
		t.Errorf("got reason %s of %s, want %s", info.GetReason(), info.GetDomain(), reason)
	}
	for key, want := range metadata {
		if info.GetMetadata()[key] != want {
			t.Errorf("metadata %s is %q, want %q", key, info.GetMetadata()[key], want)
		}
	}
}

func errorInfo(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// recv reads n events.
func recv(t testing.TB, s grpc.ServerStreamingClient[agboxv1.SandboxEvent], n int) []*agboxv1.SandboxEvent {
	t.Helper()
	var out []*agboxv1.SandboxEvent
	for range n {
		e, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d events: %v", len(out), err)
		}
		out = append(out, e)
	}
	return out
}

func cleanEnd(t testing.TB, s grpc.ServerStreamingClient[agboxv1.SandboxEvent]) {
	t.Helper()
	if e, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v, want the end", e, err)
	}
}
