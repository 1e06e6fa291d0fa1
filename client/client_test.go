package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/server/servertest"
	"github.com/agbox/agbox/store"
)

// daemon is a server that can be stopped and started on the same data.
type daemon struct {
	t      testing.TB
	dir    string
	socket string
	store  *store.Store
	stop   func()
	// onRead is called after each GetSandbox, when set before the daemon starts.
	onRead func()
}

func newDaemon(t testing.TB) (*daemon, *client.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, socket: filepath.Join(dir, "100%?.sock")} // a path is no URL
	d.start()
	c, err := client.Dial(d.socket)
	d.must(err)
	t.Cleanup(func() {
		_ = c.Close()
		if d.stop != nil {
			d.stop()
		}
		_ = os.RemoveAll(dir)
	})
	return d, c
}

func (d *daemon) start() {
	d.t.Helper()
	st, err := store.Open(context.Background(), store.Options{Path: filepath.Join(d.dir, "ids.db"), InitialMmapSize: 64 << 20})
	d.must(err)
	l, err := net.Listen("unix", d.socket)
	d.must(err)
	deps := servertest.Deps(st)
	deps.Observe = func(method string, _ codes.Code, _ time.Duration) {
		if d.onRead != nil && method == agboxv1.SandboxService_GetSandbox_FullMethodName {
			d.onRead()
		}
	}
	server := server.New(deps)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	d.store = st
	d.stop = func() {
		if err := errors.Join(server.Shutdown(context.Background()), <-served, st.Close()); err != nil {
			d.t.Errorf("stop: %v", err)
		}
		d.stop = nil
	}
}

func (d *daemon) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) create(c *client.Client, id string) {
	d.t.Helper()
	_, err := c.CreateSandbox(d.t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: "x"}})
	d.must(err)
}

func (d *daemon) report(id string, kind agboxv1.EventType, state agboxv1.SandboxState) {
	d.t.Helper()
	sb, err := d.store.Sandbox(d.t.Context(), id)
	d.must(err)
	e := &agboxv1.SandboxEvent{EventType: kind, SandboxState: state}
	if state == failed {
		e.Details = &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{ErrorCode: "SANDBOX_CREATE_FAILED", ErrorMessage: "no image"}}
	}
	d.must(d.store.Report(d.t.Context(), id, store.Report{Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{e}}))
}

const (
	ready   = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed  = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// inBackground runs a wait and returns its result.
func inBackground[T any](wait func() (T, error)) func() (T, error) {
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	go func() {
		v, err := wait()
		ch <- result{v, err}
	}()
	return func() (T, error) { r := <-ch; return r.v, r.err }
}

func TestWaitsOutliveTheDaemon(t *testing.T) {
	d, c := newDaemon(t)
	d.create(c, "abcd")
	wait := func(want client.Condition) func() (*agboxv1.SandboxHandle, error) {
		return inBackground(func() (*agboxv1.SandboxHandle, error) { return c.WaitSandbox(t.Context(), "abcd", want) })
	}
	restart := func() { d.stop(); d.start() }

	isReady := wait(client.Ready)
	restart()
	d.report("abcd", agboxv1.EventType_SANDBOX_READY, ready)
	sb, err := isReady()
	if d.must(err); sb.GetState() != ready {
		t.Errorf("got %v", sb)
	}

	exec, err := c.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "abcd", Command: []string{"true"}})
	d.must(err)
	ended := inBackground(func() (*agboxv1.ExecStatus, error) { return c.WaitExec(t.Context(), exec.GetExecId()) })
	restart()
	d.must(d.store.EndExec(t.Context(), exec.GetExecId(), &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ExitCode: 7, ErrorCode: "EXEC_RUN_FAILED"}))
	e, err := ended()
	if d.must(err); e.GetExitCode() != 7 {
		t.Errorf("got %v", e)
	}

	d.must(c.StopSandbox(t.Context(), "abcd"))
	isStopped := wait(client.Stopped)
	d.report("abcd", agboxv1.EventType_SANDBOX_STOPPED, stopped)
	_, err = isStopped()
	d.must(err)

	d.must(c.DeleteSandbox(t.Context(), "abcd"))
	isDeleted, neverReady := wait(client.Deleted), wait(client.Ready)
	var impossible *client.FailedError
	if _, err := neverReady(); !errors.As(err, &impossible) {
		t.Errorf("got %v", err)
	}
	restart()
	d.report("abcd", agboxv1.EventType_SANDBOX_DELETED, deleted)
	_, err = isDeleted()
	d.must(err)
}

// Whoever waits for a delete need not be faster than the retention.
func TestWaitDeletedSucceedsAfterAPurge(t *testing.T) {
	d, c := newDaemon(t)
	d.stop()
	read := make(chan struct{}, 10)
	d.onRead = func() { read <- struct{}{} }
	d.start()
	d.create(c, "abcd")
	d.must(c.DeleteSandbox(t.Context(), "abcd"))
	isDeleted := inBackground(func() (*agboxv1.SandboxHandle, error) { return c.WaitSandbox(t.Context(), "abcd", client.Deleted) })
	<-read
	d.report("abcd", agboxv1.EventType_SANDBOX_DELETED, deleted)
	d.must(d.store.PurgeSandbox(t.Context(), "abcd"))
	_, err := isDeleted()
	d.must(err)
}

func TestWaitFailsOnFailed(t *testing.T) {
	d, c := newDaemon(t)
	d.create(c, "abcd")
	wait := inBackground(func() (*agboxv1.SandboxHandle, error) { return c.WaitSandbox(t.Context(), "abcd", client.Ready) })
	d.report("abcd", agboxv1.EventType_SANDBOX_FAILED, failed)
	sb, err := wait()
	var failure *client.FailedError
	if !errors.As(err, &failure) || sb.GetErrorCode() != "SANDBOX_CREATE_FAILED" ||
		err.Error() != "sandbox abcd will not be ready: it is FAILED (SANDBOX_CREATE_FAILED: no image)" {
		t.Errorf("got %v", err)
	}
	if _, err := c.WaitSandbox(t.Context(), "nope", client.Deleted); !client.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if _, err := c.WaitExec(t.Context(), "nope"); client.Reason(err) != "EXEC_NOT_FOUND" {
		t.Errorf("got %v", err)
	}
}

// becomesReady is PENDING for the first read. It refuses the second subscription.
type becomesReady struct {
	agboxv1.UnimplementedSandboxServiceServer
	reads, subscriptions int
}

func (s *becomesReady) GetSandbox(context.Context, *agboxv1.GetSandboxRequest) (*agboxv1.GetSandboxResponse, error) {
	sb := &agboxv1.SandboxHandle{SandboxId: "abcd", State: agboxv1.SandboxState_SANDBOX_STATE_PENDING, LastEventSequence: 3}
	if s.reads++; s.reads > 1 {
		sb.State, sb.LastEventSequence = ready, 5
	}
	return &agboxv1.GetSandboxResponse{Sandbox: sb}, nil
}

func (s *becomesReady) SubscribeSandboxEvents(_ *agboxv1.SubscribeSandboxEventsRequest, to grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	if s.subscriptions++; s.subscriptions > 1 {
		return status.Error(codes.ResourceExhausted, "too many subscriptions")
	}
	return to.Send(&agboxv1.SandboxEvent{Sequence: 4, SandboxState: ready})
}

func TestWaitThatIsMetNeedsNoMoreEvents(t *testing.T) {
	c := serveSandboxes(t, &becomesReady{})
	var got []uint64
	observe := func(e *agboxv1.SandboxEvent) { got = append(got, e.GetSequence()) }
	sb, err := c.WaitSandboxWith(t.Context(), "abcd", client.Ready, client.WaitOptions{OnEvent: observe, From: 3})
	if err != nil || sb.GetState() != ready || len(got) != 1 || got[0] != 4 {
		t.Errorf("got %v, %v with events %v", sb, err, got)
	}
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	d, c := newDaemon(t)
	d.create(c, "abcd")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.WaitSandbox(ctx, "abcd", client.Ready); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cause := errors.New("enough")
	gone, enough := context.WithCancelCause(t.Context())
	wait := inBackground(func() (*agboxv1.SandboxHandle, error) { return c.WaitSandbox(gone, "abcd", client.Ready) })
	d.stop() // also while it looks for the daemon
	enough(cause)
	if _, err := wait(); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestEventsReconnect(t *testing.T) {
	d, c := newDaemon(t)
	d.create(c, "abcd")
	d.report("abcd", agboxv1.EventType_SANDBOX_READY, ready)
	var got []uint64
	for e, err := range c.Events(t.Context(), "abcd", client.EventOptions{Reconnect: true}) {
		d.must(err)
		got = append(got, e.GetSequence())
		switch e.GetEventType() {
		case agboxv1.EventType_SANDBOX_READY:
			d.stop()
			d.start()
			d.must(d.deleteDirectly("abcd"))
		case agboxv1.EventType_SANDBOX_DELETE_REQUESTED:
			d.report("abcd", agboxv1.EventType_SANDBOX_DELETED, deleted)
			d.must(d.store.PurgeSandbox(t.Context(), "abcd")) // the clean end, or the last event and then the end
		}
	}
	if len(got) < 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 || len(got) > 4 {
		t.Errorf("got %v", got)
	}
}

func (d *daemon) deleteDirectly(id string) error {
	_, err := d.store.RequestDelete(d.t.Context(), id, "delete_requested")
	return err
}

func TestEventsWithoutReconnectEnd(t *testing.T) {
	d, c := newDaemon(t)
	d.create(c, "abcd")
	var last error
	for _, err := range c.Events(t.Context(), "abcd", client.EventOptions{}) {
		if last = err; err == nil {
			d.stop()
		}
	}
	if !client.IsUnavailable(last) {
		t.Errorf("got %v", last)
	}
}

func TestErrors(t *testing.T) {
	d, c := newDaemon(t)
	_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{BuiltinTools: []string{"no-such-tool"}}})
	var e *client.Error
	if !errors.As(err, &e) || !client.IsInvalidArgument(err) || e.Reason != "INVALID_SPEC" || len(e.Fields) != 2 || e.Fields[1].Field != "builtin_tools[0]" ||
		e.Metadata["field"] != "image" || client.Code(err).String() != "InvalidArgument" {
		t.Errorf("got %#v", err)
	}
	if _, err := c.GetSandbox(t.Context(), "nope"); !client.IsNotFound(err) || err.Error() != "sandbox nope was not found" {
		t.Errorf("got %v", err)
	}
	d.create(c, "abcd")
	if err := c.StopSandbox(t.Context(), "abcd"); !client.IsFailedPrecondition(err) {
		t.Errorf("got %v", err)
	}
}

func TestDialWithoutAServer(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):             "no such socket; is agboxd running?",
		"unix://" + filepath.Join(dir, "none"): "no such socket; is agboxd running?",
		plain:                                  "is not a socket",
	} {
		c, err := client.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Ping(t.Context())
		if !client.IsUnavailable(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
		_ = c.Close()
	}
}

func TestDefaultSocket(t *testing.T) {
	t.Setenv("AGBOX_HOST", "unix:///a/b")
	if got := client.DefaultSocket(); got != "/a/b" {
		t.Errorf("got %s", got)
	}
	t.Setenv("AGBOX_HOST", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if got := client.DefaultSocket(); got != "/run/user/7/agbox/agboxd.sock" {
		t.Errorf("got %s", got)
	}
}
