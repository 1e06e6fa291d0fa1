//go:build docker

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// asOf is what the daemon says of one sandbox and its execs.
type asOf struct {
	handle *agboxv1.SandboxHandle
	events []*agboxv1.SandboxEvent
	execs  map[string]*agboxv1.ExecStatus
}

func (d *daemon) asOf(id string, execs ...string) asOf {
	d.Helper()
	a := asOf{d.sandbox(id), d.events(id), map[string]*agboxv1.ExecStatus{}}
	for _, execID := range execs {
		a.execs[execID] = must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: execID}))(d).GetExec()
	}
	return a
}

// TestRestoredAfterTheWorldMovedOn: a backup, more work, a crash, a restore.
func TestRestoredAfterTheWorldMovedOn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	d.unaudited = "the restored database knows nothing of what was made after the backup"
	file := filepath.Join(t.TempDir(), "backup")
	keeper, leaver := d.named("keeper", &agboxv1.CreateSpec{Labels: map[string]string{"a": "b"}}), d.named("leaver", &agboxv1.CreateSpec{})
	d.await(keeper, ready)
	d.await(leaver, ready)
	bad := d.exec(keeper, "sh", "-c", "echo out; echo err >&2; exit 3")
	d.ended(bad.GetExecId())
	gone := d.exec(leaver, "echo", "left")
	d.ended(gone.GetExecId())
	running := d.exec(keeper, "sh", "-c", "while [ ! -e /workspace/go ]; do sleep 0.1; done; echo went on")

	if out := d.agbox("backup", "--with-logs", file); !strings.Contains(out, "written") {
		t.Fatal(out)
	}
	if out := d.agbox("backup", "verify", file); !strings.Contains(out, "is complete") {
		t.Fatal(out)
	}
	keptThen, leftThen := d.asOf(keeper, bad.GetExecId()), d.asOf(leaver, gone.GetExecId())

	d.sh(keeper, "echo later")
	d.remove(leaver)
	newcomer := d.named("newcomer", &agboxv1.CreateSpec{})
	d.await(newcomer, ready)
	containers := d.held(newcomer)
	if out, err := d.command("restore", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "another agboxd is running") {
		t.Errorf("beside the daemon: %s, %v", out, err)
	}
	d.kill()
	if out, err := d.command("restore", file).CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	if out, err := d.command("db", "check").CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	d.log = &logFile{} // only what the new one says counts
	d.start()

	d.await(keeper, ready)
	d.sameAs(keeper, keptThen)
	if got := d.sandbox(keeper); got.GetName() != "keeper" || !proto.Equal(got.GetSpec(), keptThen.handle.GetSpec()) || !proto.Equal(got.GetCreatedAt(), keptThen.handle.GetCreatedAt()) {
		t.Errorf("got %v, and it was %v", got, keptThen.handle)
	}
	d.sh(keeper, "touch /workspace/go")
	if st := d.ended(running.GetExecId()); st.GetState() != finished || d.read(running.GetStdoutLogPath()) != "went on\n" {
		t.Errorf("an exec that ran all the time: %v", st)
	}
	d.failsWith(leaver, "CONTAINER_MISSING")
	d.sameAs(leaver, leftThen)
	if got := d.read(gone.GetStdoutLogPath()); got != "left\n" {
		t.Errorf("a log of the backup: %q", got)
	}
	if _, err := d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: newcomer}); !isCode(err, codes.NotFound) {
		t.Errorf("what came after the backup: %v", err)
	}
	d.eventually("what the backup does not know is reported", func() error {
		if log := d.log.tail(1 << 20); !strings.Contains(log, newcomer) {
			return fmt.Errorf("no word of %s", newcomer)
		}
		return nil
	})
	if got := d.held(newcomer); got != containers {
		t.Errorf("what the backup does not know holds %q, and held %q", got, containers)
	}
	d.remove(leaver)
	d.remove(keeper)
}

// sameAs compares with what was: the events go on from it, the execs are the same.
func (d *daemon) sameAs(id string, then asOf) {
	d.Helper()
	now := d.events(id)
	for i, was := range then.events {
		if i >= len(now) || !proto.Equal(now[i], was) {
			d.Fatalf("of %d events the %dth is not %v", len(now), i+1, was)
		}
	}
	for execID, was := range then.execs {
		if st := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: execID}))(d).GetExec(); !proto.Equal(st, was) {
			d.Errorf("exec %v, and it was %v", st, was)
		}
	}
}
