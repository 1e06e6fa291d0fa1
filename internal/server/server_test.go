package server_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

func TestCreateStoresTheMergedSpec(t *testing.T) {
	f := newFixture(t)
	resp, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{
		ConfigYaml: []byte("image: a\nenvs: {A: '1', B: '1'}\nidle_ttl: 30m"), Name: "web",
		CreateSpec: &agboxv1.CreateSpec{Image: "b", Envs: map[string]string{"B": "2"}},
	})
	f.must(err)
	sb := resp.GetSandbox()
	want := &agboxv1.CreateSpec{Image: "b", Envs: map[string]string{"A": "1", "B": "2"}, IdleTtl: durationpb.New(30 * time.Minute)}
	if !proto.Equal(sb.GetSpec(), want) || sb.GetName() != "web" || len(sb.GetSandboxId()) != 36 || sb.GetState() != pending || sb.GetLastEventSequence() != 1 {
		t.Errorf("got %v", sb)
	}
	got, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: sb.GetSandboxId()})
	if f.must(err); !proto.Equal(got.GetSandbox(), sb) {
		t.Errorf("got %v, want %v", got, sb)
	}
	plain, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "b"}})
	if f.must(err); plain.GetSandbox().GetSpec().GetIdleTtl() != nil {
		t.Error("the daemon's default idle_ttl was stored")
	}
}

func TestHandles(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) { d.Status = func(id string) string { return "busy with " + id } })
	f.create("aaaa", failed)
	f.create("bbbb", ready)
	f.create("cccc", deleted)
	f.exec("bbbb", "exec1")
	_, err := f.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "bbbb"})
	f.must(err)
	list := func(req *agboxv1.ListSandboxesRequest) (ids string) {
		resp, err := f.ListSandboxes(t.Context(), req)
		f.must(err)
		for _, sb := range resp.GetSandboxes() {
			ids += sb.GetSandboxId() + " "
		}
		return ids
	}
	if got := list(&agboxv1.ListSandboxesRequest{}); got != "bbbb aaaa " {
		t.Errorf("got %s", got)
	}
	if got := list(&agboxv1.ListSandboxesRequest{IncludeDeleted: true}); got != "cccc bbbb aaaa " {
		t.Errorf("got %s", got)
	}
	if got := list(&agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{"id": "aaaa"}}); got != "aaaa " {
		t.Errorf("got %s", got)
	}
	get := func(id string) *agboxv1.SandboxHandle {
		resp, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
		f.must(err)
		return resp.GetSandbox()
	}
	if sb := get("aaaa"); sb.GetErrorCode() != "CONTAINER_DIED" || sb.GetErrorMessage() != "it died" || sb.GetStatusMessage() != "busy with aaaa" {
		t.Errorf("got %v", sb)
	}
	if sb := get("bbbb"); sb.GetDesiredState() != "stopped" || sb.GetState() != ready || sb.GetActiveExecs() != 1 || sb.GetLabels()["id"] != "bbbb" {
		t.Errorf("got %v", sb)
	}
	if sb := get("cccc"); sb.GetState() != deleted || sb.GetStatusMessage() != "" || sb.GetDesiredState() != "" {
		t.Errorf("got %v", sb)
	}
}

// TestARuntimeWithoutNamesIsWarnedOf while the sandbox runs.
func TestARuntimeWithoutNamesIsWarnedOf(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) { d.Nameless = func(id string) bool { return id != "bbbb" } })
	f.create("aaaa", ready)
	f.create("bbbb", ready)
	f.create("cccc", failed)
	for id, want := range map[string]string{"aaaa": "no host name resolves", "bbbb": "", "cccc": ""} {
		resp, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
		f.must(err)
		if got := strings.Join(resp.GetSandbox().GetWarnings(), "; "); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", id, got)
		}
	}
}

func TestExecs(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	resp, err := f.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "abcd", Command: []string{"a", "b"}, Cwd: "/c", EnvOverrides: map[string]string{"K": "v"}})
	f.must(err)
	id := resp.GetExecId()
	if len(id) != 36 || resp.GetStdoutLogPath() != "/logs/abcd/"+id+".out" || resp.GetStderrLogPath() != "/logs/abcd/"+id+".err" {
		t.Errorf("got %v", resp)
	}
	active := func(sandboxID *string) int {
		resp, err := f.ListActiveExecs(t.Context(), &agboxv1.ListActiveExecsRequest{SandboxId: sandboxID})
		f.must(err)
		return len(resp.GetExecs())
	}
	if active(nil) != 1 || active(proto.String("abcd")) != 1 || active(proto.String("nope")) != 0 || active(proto.String("")) != 0 {
		t.Error("active execs")
	}
	f.endExec(id)
	got, err := f.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: id})
	f.must(err)
	e := got.GetExec()
	if e.GetState() != agboxv1.ExecState_EXEC_STATE_FAILED || e.GetExitCode() != 7 || e.GetErrorCode() != "EXEC_RUN_FAILED" || e.GetLastEventSequence() != 4 ||
		e.GetCwd() != "/c" || e.GetEnvOverrides()["K"] != "v" || e.GetEndedAt() == nil || e.GetCreatedAt() == nil || active(nil) != 0 {
		t.Errorf("got %v", e)
	}
}

func TestDeleteByLabel(t *testing.T) {
	f := newFixture(t)
	f.create("aaaa", ready)
	f.create("bbbb", ready)
	resp, err := f.DeleteSandboxes(t.Context(), &agboxv1.DeleteSandboxesRequest{LabelSelector: map[string]string{"id": "aaaa"}})
	if f.must(err); resp.GetDeletedCount() != 1 || strings.Join(resp.GetDeletedSandboxIds(), " ") != "aaaa" {
		t.Errorf("got %v", resp)
	}
}

func TestPingAndConfirm(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) {
		d.Engine = func() string { return "the engine is away" }
		d.ConfirmEngine = func(context.Context) (*agboxv1.ConfirmEngineResponse, error) {
			return &agboxv1.ConfirmEngineResponse{EngineId: "ID", GivenUp: []string{"aaaa"}}, nil
		}
	})
	ping, err := f.Ping(t.Context(), &agboxv1.PingRequest{})
	if f.must(err); ping.GetDaemon() != "agboxd" || ping.GetVersion() != "v1" || ping.GetEngineProblem() != "the engine is away" || ping.GetInstanceId() != f.store.InstanceID() {
		t.Errorf("got %v", ping)
	}
	confirm, err := f.admin.ConfirmEngine(t.Context(), &agboxv1.ConfirmEngineRequest{})
	if f.must(err); confirm.GetEngineId() != "ID" || !slices.Equal(confirm.GetGivenUp(), []string{"aaaa"}) {
		t.Errorf("got %v", confirm)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if code, ok := f.seen[agboxv1.SandboxService_Ping_FullMethodName]; !ok || code != codes.OK {
		t.Error("the call was not observed")
	}
}

// A server that stops does not wait for the proof that a confirmation waits for.
func TestAStoppingServerEndsAConfirmation(t *testing.T) {
	waits := make(chan struct{})
	f := newFixture(t, func(d *server.Deps) {
		d.ConfirmEngine = func(ctx context.Context) (*agboxv1.ConfirmEngineResponse, error) {
			close(waits)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ended := make(chan error, 1)
	go func() {
		_, err := f.admin.ConfirmEngine(context.Background(), &agboxv1.ConfirmEngineRequest{})
		ended <- err
	}()
	<-waits
	f.must(f.server.Shutdown(context.Background()))
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// slow is a store whose reads wait.
type slow struct {
	*store.Store
	entered, release chan struct{}
}

func (s slow) Sandbox(ctx context.Context, id string) (store.Sandbox, error) {
	close(s.entered)
	<-s.release
	return s.Store.Sandbox(ctx, id)
}

func TestShutdownFinishesUnaryCalls(t *testing.T) {
	var st slow
	f := newFixture(t, func(d *server.Deps) {
		st = slow{d.Store.(*store.Store), make(chan struct{}), make(chan struct{})}
		d.Store = st
	})
	f.create("abcd", pending)
	answer, down := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "abcd"})
		answer <- err
	}()
	<-st.entered
	go func() { down <- f.shutdown(context.Background()) }()
	select {
	case err := <-down:
		t.Fatalf("shut down with a call open: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(st.release)
	f.must(<-answer)
	f.must(<-down)
}

func TestShutdownIsCutOffByItsContext(t *testing.T) {
	var st slow
	f := newFixture(t, func(d *server.Deps) {
		st = slow{d.Store.(*store.Store), make(chan struct{}), make(chan struct{})}
		d.Store = st
	})
	f.create("abcd", pending)
	answer := make(chan error, 1)
	go func() {
		_, err := f.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "abcd"})
		answer <- err
	}()
	<-st.entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	go func() { <-answer; close(st.release) }() // the client is cut off first, then the handler ends
	if err := f.shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
