//go:build docker

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/host/naming"
)

// newEngine starts an engine of the test's own, which may die, with the base image.
func newEngine(t testing.TB, args ...string) *dockerd.Engine {
	t.Helper()
	return newEngineIn(t, "", args...)
}

// newEngineIn is newEngine with the engine's files below dir.
func newEngineIn(t testing.TB, dir string, args ...string) *dockerd.Engine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a private engine needs root")
	}
	e := dockerd.StartIn(t, dir, args...)
	loadImage(t, e, baseImage)
	return e
}

// loadImage copies an image from the engine that is there.
func loadImage(t testing.TB, e *dockerd.Engine, image string) {
	t.Helper()
	script := fmt.Sprintf("docker save %s | docker -H %s load", image, e.Host())
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func TestTheEnginesDeathWithoutLiveRestoreRestartsSandboxes(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	d := newDaemon(t, e.Host(), "")
	id := d.create(nil)
	halted := d.create(nil)
	d.await(id, ready)
	d.await(halted, ready)
	d.sh(id, "echo kept >/workspace/note")
	d.stopBox(halted)
	d.await(halted, stopped)
	x := d.exec(id, "sleep", "1000")
	d.started(x)

	e.Kill()
	e.Start()
	d.eventually("restarted", func() error {
		if types := d.types(id); !strings.Contains(types, "RESTARTED") {
			return fmt.Errorf("%s", types)
		}
		return nil
	})
	d.await(id, ready)
	// Lost, or with its true end on record: the next engine may still have sent the container a TERM.
	if st := d.ended(x.GetExecId()); st.GetErrorCode() != "EXEC_LOST" && st.GetExitCode() != 143 {
		t.Errorf("the exec is %s %s %s", st.GetState(), st.GetErrorCode(), st.GetError())
	}
	if got := d.sh(id, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
	if types := d.types(id); strings.Contains(types, "SANDBOX_FAILED") {
		t.Errorf("got %s", types)
	}
	if s := d.state(halted); s != stopped {
		t.Errorf("the stopped one is %s", s)
	}
	d.remove(id)
	d.remove(halted)
}

func TestEngineAndDaemonKilledTogetherWithoutLiveRestore(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	d := newDaemon(t, e.Host(), "")
	id := d.create(nil)
	d.await(id, ready)
	d.kill()
	e.Kill()
	e.Start()
	d.start()
	d.eventually("restarted", func() error {
		if types := d.types(id); types != "ACCEPTED PREPARING READY RESTARTED" {
			return fmt.Errorf("%s", types)
		}
		return nil
	})
	d.sh(id, "true")
	d.remove(id)
}

func TestTheEnginesDeathWithLiveRestoreIsNotNoticedInside(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "--live-restore")
	d := newDaemon(t, e.Host(), "")
	id := d.create(nil)
	d.await(id, ready)
	x := d.exec(id, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.5; done; exit 5")
	d.started(x)
	e.Kill()
	during := d.exec(id, "echo", "the engine is dead")
	if st := d.ended(during.GetExecId()); st.GetState() != finished {
		t.Errorf("an exec without an engine is %s %s", st.GetState(), st.GetError())
	}
	e.Start()
	if st := d.ended(x.GetExecId()); st.GetExitCode() != 5 || d.read(x.GetStdoutLogPath()) != "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" {
		t.Errorf("the exec is %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
	}
	if s := d.state(id); s != ready {
		t.Errorf("the sandbox is %s", s)
	}
	d.remove(id)
}

func TestAFrozenEngineDelaysNoExecNoCancelAndNoCall(t *testing.T) {
	t.Parallel()
	e := newEngine(t, "--live-restore")
	d := newDaemon(t, e.Host(), "")
	id := d.create(nil)
	d.await(id, ready)
	x := d.exec(id, "sleep", "1000")
	d.started(x)

	e.Freeze()
	must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: x.GetExecId()}))(t)
	if st := d.ended(x.GetExecId()); st.GetState() != ended {
		t.Errorf("the cancelled exec is %s %s", st.GetState(), st.GetError())
	}
	y := d.exec(id, "echo", "hi")
	if st := d.ended(y.GetExecId()); st.GetState() != finished {
		t.Errorf("a new exec is %s %s", st.GetState(), st.GetError())
	}
	other := d.create(nil)
	d.eventually("the daemon says so", func() error {
		if ping := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t); ping.GetEngineProblem() == "" {
			return fmt.Errorf("no problem is reported")
		}
		return nil
	})
	if s := d.state(other); s != pending {
		t.Errorf("the new sandbox is %s", s)
	}
	e.Thaw()
	d.await(other, ready)
	d.remove(other)
	d.remove(id)
}

func TestAnotherEngineIsNotJudged(t *testing.T) {
	t.Parallel()
	first, second := newEngine(t), newEngine(t)
	sock := filepath.Join(must(os.MkdirTemp("", "agbox-e2e-"))(t), "switch.sock")
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(sock)) })
	stop := forward(t, sock, first.Socket())
	d := newDaemon(t, "unix://"+sock, "[runtime]\nnetwork_mode = \"open\"\n") // the bridges of an engine behind a proxy are not here, and nothing says so
	id := d.create(nil)
	d.await(id, ready)

	stop()
	stop = forward(t, sock, second.Socket())
	d.eventually("the daemon says so", func() error {
		ping := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t)
		if !strings.Contains(ping.GetEngineProblem(), "another Docker engine") {
			return fmt.Errorf("problem is %q", ping.GetEngineProblem())
		}
		return nil
	})
	if s := d.state(id); s != ready {
		t.Errorf("the sandbox is %s", s)
	}
	stop()
	forward(t, sock, first.Socket())
	d.eventually("the right engine is back", func() error {
		if p := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t).GetEngineProblem(); p != "" {
			return fmt.Errorf("problem is %q", p)
		}
		return nil
	})
	if got := d.types(id); got != "ACCEPTED PREPARING READY" {
		t.Errorf("got %s", got)
	}
	d.host = first.Host()
	d.remove(id)
}

func TestARestoredOlderDatabaseKillsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	d.unaudited = "the restored database knows nothing of one of its sandboxes"
	before := d.create(nil)
	d.await(before, ready)
	d.stop()
	db := d.home + "/data/agents-sandbox/ids.db"
	old := must(os.ReadFile(db))(t)
	d.start()
	id := d.create(nil)
	d.await(id, ready)
	d.stop()
	if err := os.WriteFile(db, old, 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.sh(before, "sleep 3") // three resyncs
	if got := strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Running}}", naming.Primary(id))); got != "true" {
		t.Errorf("the sandbox that the older database does not know runs: %s", got)
	}
	if _, err := d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}); !isCode(err, codes.NotFound) {
		t.Errorf("got %v", err)
	}
	d.remove(before)
}

func TestAFullDiskRefusesAcceptsAndServesReads(t *testing.T) {
	t.Parallel()
	home, fill := smallDisk(t)
	d := newDaemonIn(t, home, "", "")
	id := d.create(nil)
	d.await(id, ready)
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4k").Run() // until the disk is full
	var refused error
	for i := 0; i < 2000 && refused == nil; i++ {
		_, refused = d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: baseImage}})
	}
	if !isCode(refused, codes.Unavailable) {
		t.Errorf("got %v", refused)
	}
	if _, err := d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}); err != nil {
		t.Errorf("reads: %v", err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	d.acceptsAgain(id)
	d.remove(id)
}
