package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
)

// overSocket returns a client at a Unix socket, where the kernel names the user.
func (f *fixture) overSocket() agboxv1.SandboxServiceClient {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		f.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_, _ = conn.Close(), l.Close()
		<-served
	})
	return agboxv1.NewSandboxServiceClient(conn)
}

// A refusal names the limit, the present value and the way out, and a new limit of a reload holds at once.
func TestTheLimitsOfACaller(t *testing.T) {
	var limits atomic.Pointer[server.CallerLimits]
	limits.Store(&server.CallerLimits{Sandboxes: 1, Execs: 1})
	f := newFixture(t, func(d *server.Deps) { d.CallerLimits = func() server.CallerLimits { return *limits.Load() } })
	c := f.overSocket()
	me := fmt.Sprintf("uid:%d", os.Geteuid())
	create := func(dry bool) error {
		_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "i"}, DryRun: dry})
		return err
	}
	first, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "first", CreateSpec: &agboxv1.CreateSpec{Image: "i"}})
	if err != nil || first.GetSandbox().GetCreatedBy() != me {
		t.Fatalf("%v, %v", first, err)
	}
	message := me + " has 1 of at most 1 sandboxes; delete one, or have the operator of agboxd raise limits.sandboxes_per_caller"
	metadata := map[string]string{"limit": "limits.sandboxes_per_caller", "limit_value": "1", "used": "1", "caller": me}
	refused(t, create(false), codes.ResourceExhausted, "CALLER_LIMIT", message, metadata)
	refused(t, create(true), codes.ResourceExhausted, "CALLER_LIMIT", message, metadata)

	f.report("first", agboxv1.SandboxState_SANDBOX_STATE_READY)
	exec := func() error {
		_, err := c.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "first", Command: []string{"true"}})
		return err
	}
	if err := exec(); err != nil {
		t.Fatal(err)
	}
	refused(t, exec(), codes.ResourceExhausted, "CALLER_LIMIT",
		me+" has 1 of at most 1 running execs; wait for one to end, or cancel one, or have the operator of agboxd raise limits.execs_per_caller",
		map[string]string{"limit": "limits.execs_per_caller", "limit_value": "1", "used": "1", "caller": me})

	limits.Store(&server.CallerLimits{})
	if err := create(false); err != nil {
		t.Error(err)
	}
	if err := exec(); err != nil {
		t.Error(err)
	}
}
