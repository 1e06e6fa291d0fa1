//go:build docker

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/naming"
)

// engine is a dockerd of the test's own, in its own network namespace, which may die.
type engine struct {
	testing.TB
	dir, netns string
	args       []string
	cmd        *exec.Cmd
	done       chan struct{}
}

func newEngine(t testing.TB, args ...string) *engine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a private engine needs root")
	}
	dir, err := os.MkdirTemp("", "agbox-e2e-engine-")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{TB: t, dir: dir, netns: filepath.Base(dir), args: args}
	t.Cleanup(e.destroy)
	e.sh("ip", "netns", "add", e.netns)
	e.sh("ip", "-n", e.netns, "link", "set", "lo", "up")
	e.start()
	e.image()
	return e
}

func (e *engine) sh(name string, args ...string) {
	e.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		e.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func (e *engine) host() string { return "unix://" + e.dir + "/d.sock" }

func (e *engine) start() {
	e.Helper()
	log, err := os.OpenFile(e.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"netns", "exec", e.netns, "dockerd", "-H", e.host(), "--data-root", e.dir + "/data",
		"--exec-root", e.dir + "/exec", "--pidfile", e.dir + "/pid"}, e.args...)
	cmd := exec.Command("ip", args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	e.cmd, e.done = cmd, done
	deadline := time.Now().Add(patience)
	for !e.answers() {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(e.dir + "/log")
			e.Fatalf("the engine does not answer\n%s", text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (e *engine) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "-H", e.host(), "info").Run() == nil
}

// image brings the base image from the engine that is there.
func (e *engine) image() {
	e.Helper()
	e.sh("sh", "-c", fmt.Sprintf("docker save %s | docker -H %s load", baseImage, e.host()))
}

func (e *engine) kill() {
	_ = e.cmd.Process.Kill()
	<-e.done
	_ = os.Remove(e.dir + "/pid") // what a service manager does
}

func (e *engine) signal(s syscall.Signal) {
	e.Helper()
	if err := e.cmd.Process.Signal(s); err != nil {
		e.Fatal(err)
	}
}

func (e *engine) destroy() {
	_ = e.cmd.Process.Signal(syscall.SIGCONT)
	if e.answers() {
		_ = exec.Command("sh", "-c", fmt.Sprintf("docker -H %[1]s ps -aq | xargs -r docker -H %[1]s rm -fv", e.host())).Run()
	}
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.done:
	case <-time.After(30 * time.Second):
		e.kill()
	}
	_ = exec.Command("ip", "netns", "del", e.netns).Run()
	_ = exec.Command("sh", "-c", "grep -o ' "+e.dir+"[^ ]*' /proc/mounts | sort -r | xargs -r umount -l").Run()
	_ = os.RemoveAll(e.dir)
}

func TestTheEnginesDeathWithoutLiveRestoreRestartsWhatRan(t *testing.T) {
	e := newEngine(t)
	d := newDaemon(t, e.host(), "")
	id := d.create(nil)
	halted := d.create(nil)
	d.await(id, ready)
	d.await(halted, ready)
	d.sh(id, "echo kept >/workspace/note")
	d.stopBox(halted)
	d.await(halted, stopped)
	x := d.exec(id, "sleep", "1000")
	d.started(x)

	e.kill()
	e.start()
	d.eventually("restarted", func() error {
		if types := d.types(id); !strings.Contains(types, "RESTARTED") {
			return fmt.Errorf("%s", types)
		}
		return nil
	})
	d.await(id, ready)
	if st := d.ended(x.GetExecId()); st.GetErrorCode() != "EXEC_LOST" {
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
	e := newEngine(t)
	d := newDaemon(t, e.host(), "")
	id := d.create(nil)
	d.await(id, ready)
	d.kill()
	e.kill()
	e.start()
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
	e := newEngine(t, "--live-restore")
	d := newDaemon(t, e.host(), "")
	id := d.create(nil)
	d.await(id, ready)
	x := d.exec(id, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.5; done; exit 5")
	d.started(x)
	e.kill()
	during := d.exec(id, "echo", "the engine is dead")
	if st := d.ended(during.GetExecId()); st.GetState() != finished {
		t.Errorf("an exec without an engine is %s %s", st.GetState(), st.GetError())
	}
	e.start()
	if st := d.ended(x.GetExecId()); st.GetExitCode() != 5 || d.read(x.GetStdoutLogPath()) != "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" {
		t.Errorf("the exec is %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
	}
	if s := d.state(id); s != ready {
		t.Errorf("the sandbox is %s", s)
	}
	d.remove(id)
}

func TestAFrozenEngineDelaysNoExecNoCancelAndNoCall(t *testing.T) {
	e := newEngine(t, "--live-restore")
	d := newDaemon(t, e.host(), "")
	id := d.create(nil)
	d.await(id, ready)
	x := d.exec(id, "sleep", "1000")
	d.started(x)

	e.signal(syscall.SIGSTOP)
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
	e.signal(syscall.SIGCONT)
	d.await(other, ready)
	d.remove(other)
	d.remove(id)
}

func TestAnotherEngineIsNotJudged(t *testing.T) {
	first, second := newEngine(t), newEngine(t)
	sock := first.dir + "/switch.sock"
	stop := forward(t, sock, first.dir+"/d.sock")
	d := newDaemon(t, "unix://"+sock, "")
	id := d.create(nil)
	d.await(id, ready)

	stop()
	stop = forward(t, sock, second.dir+"/d.sock")
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
	forward(t, sock, first.dir+"/d.sock")
	d.eventually("the right engine is back", func() error {
		if p := must(d.Ping(d.ctx(), &agboxv1.PingRequest{}))(t).GetEngineProblem(); p != "" {
			return fmt.Errorf("problem is %q", p)
		}
		return nil
	})
	if got := d.types(id); got != "ACCEPTED PREPARING READY" {
		t.Errorf("got %s", got)
	}
	d.host = first.host()
	d.remove(id)
}

func TestARestoredOlderDatabaseKillsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
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
	if os.Getuid() != 0 {
		t.Skip("mounting a small filesystem needs root")
	}
	t.Parallel()
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	data := home + "/data"
	t.Cleanup(func() { _ = exec.Command("umount", "-l", data).Run() })
	if out, err := exec.Command("sh", "-c", "mkdir "+data+" && mount -t tmpfs -o size=24m tmpfs "+data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d := newDaemonIn(t, home, "", "")
	id := d.create(nil)
	d.await(id, ready)
	fill := data + "/fill"
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
	d.sh(id, "true")
	d.remove(id)
}
