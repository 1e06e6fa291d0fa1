//go:build docker

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// runscVariable names the program of gVisor's runtime. make test-runsc sets it.
const runscVariable = "AGBOX_RUNSC"

// private reports whether the host does not see the locks of a sandbox.
func (d *daemon) private(id string) bool {
	d.Helper()
	p := execjournal.New(filepath.Join(d.home, "data/agents-sandbox/exec-logs"), filepath.Join(d.home, "data/agents-sandbox/s")).Paths(id)
	if _, err := os.Stat(p.Ctl); err != nil {
		d.Fatal(err)
	}
	_, err := os.Lstat(filepath.Join(p.Ctl, execjournal.ExecDir, execjournal.PrivateName))
	return err == nil
}

// TestARuntimeThatIsNamedIsProven: runc's locks are seen, and the proof leaves no file.
func TestARuntimeThatIsNamedIsProven(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{Runtime: "runc"})
	d.await(id, ready)
	if d.private(id) {
		t.Error("the locks of runc are taken for unseen")
	}
	if files, _ := filepath.Glob(filepath.Join(d.home, "data/agents-sandbox/exec-logs", id, "*_runtime*")); len(files) > 0 {
		t.Errorf("the proof left %v", files)
	}
	if got := d.sh(id, "echo works"); got != "works\n" {
		t.Errorf("it says %q", got)
	}
	d.remove(id)
}

// runtimes writes programs that call runsc with options, and returns the engine's arguments for them.
func runtimes(t *testing.T, runsc string, options map[string]string) (args []string) {
	t.Helper()
	for name, opts := range options {
		args = append(args, scripted(t, name, fmt.Sprintf("exec %s %s \"$@\"", runsc, opts))...)
	}
	return args
}

// scripted writes a runtime that is a shell script, and returns the engine's arguments for it.
func scripted(t *testing.T, name, script string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"--add-runtime", name + "=" + path}
}

// TestGVisor takes sandboxes whose kernel is gVisor's through a life: the host does not see their locks.
func TestGVisor(t *testing.T) {
	runsc := os.Getenv(runscVariable)
	if runsc == "" {
		t.Skip(runscVariable + " is not set: gVisor's runtime takes minutes to build, see make test-runsc")
	}
	options := map[string]string{
		"runsc":  "--overlay2=none",
		"names":  "--overlay2=none --network=host", // with the engine's DNS server
		"self":   "",                               // what the container writes to its own files is lost when it stops
		"memory": "--overlay2=all:memory",          // what the container writes never reaches the host
	}
	args := append(runtimes(t, runsc, options), "--default-runtime", "runsc")
	debian, err := exec.LookPath("/usr/bin/runsc")
	if err == nil && debian != runsc {
		args = append(args, runtimes(t, debian, map[string]string{"old": "--platform=ptrace --network=none"})...)
	}
	hold := filepath.Join(t.TempDir(), "hold")
	args = append(args, scripted(t, "broken", "echo this runtime is broken >&2; exit 1")...)
	args = append(args, scripted(t, "hangs", fmt.Sprintf(`
		case " $* " in *" start "*)
			! test -e %[1]s || echo >>%[1]s.reached
			while test -e %[1]s; do sleep 0.1; done ;;
		esac
		exec %[2]s --overlay2=none "$@"`, hold, runsc))...)
	e := newEngine(t, args...)
	d := newDaemon(t, e.Host(), "")
	mute := d.create(&agboxv1.CreateSpec{Runtime: "memory"})
	forgets := d.create(&agboxv1.CreateSpec{Runtime: "self"})
	broken := d.create(&agboxv1.CreateSpec{Runtime: "broken"})

	within := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			d.TB = t
			f(t)
		})
		d.TB = t
	}
	shared := t.TempDir()
	within("a life", func(t *testing.T) {
		gVisorsLife(t, d, d.create(&agboxv1.CreateSpec{
			Runtime: "runsc", User: "0", Mounts: []*agboxv1.MountSpec{{Source: shared, Target: "/shared", Writable: true}},
		}))
		if data, err := os.ReadFile(filepath.Join(shared, "note")); err != nil || string(data) != "kept\n" {
			t.Errorf("the host reads %q, %v", data, err)
		}
	})
	within("out of memory", func(t *testing.T) { gVisorsMemory(t, d) })
	within("services, ports and a pause", func(t *testing.T) { gVisorsServices(t, d, e) })
	within("its own network stack", func(t *testing.T) { gVisorsNetstack(t, d, e) })
	within("agents", func(t *testing.T) { gVisorsAgents(t, d) })
	within("hardened", func(t *testing.T) { gVisorsHardened(t, d) })
	within("limits", func(t *testing.T) { gVisorsLimits(t, d) })
	within("a start that hangs", func(t *testing.T) { gVisorsHangingStart(t, d, hold) })
	within("the engine's default", func(t *testing.T) {
		id := d.create(nil)
		d.await(id, ready)
		if !d.private(id) {
			t.Error("the default runtime was not asked")
		}
		d.sh(id, "dmesg | grep -q gVisor")
		d.remove(id)
	})
	within("runc, named", func(t *testing.T) {
		id := d.create(&agboxv1.CreateSpec{Runtime: "runc"})
		d.await(id, ready)
		if d.private(id) {
			t.Error("the locks of runc are taken for unseen")
		}
		d.remove(id)
	})
	refused := func(id, why string) {
		t.Helper()
		d.await(id, failed)
		sb := must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(t).GetSandbox()
		if !strings.Contains(sb.GetErrorMessage(), why) {
			t.Errorf("it says %q, not %q", sb.GetErrorMessage(), why)
		}
		d.remove(id)
	}
	refused(mute, "runtime memory can't be used: after 1m0s the host does not see that the probe command has started")
	refused(forgets, "--overlay2=none")
	refused(broken, "broken")
	if debian != "" && debian != runsc {
		refused(d.create(&agboxv1.CreateSpec{Runtime: "old"}), "PR_SET_CHILD_SUBREAPER")
	}
}

func gVisorsLife(t *testing.T, d *daemon, id string) {
	d.await(id, ready)
	if !d.private(id) {
		t.Fatal("the host sees the locks: this test would show nothing")
	}
	wants := func(x *agboxv1.CreateExecResponse, state agboxv1.ExecState, code int32, reason string) {
		t.Helper()
		if st := d.ended(x.GetExecId()); st.GetState() != state || st.GetExitCode() != code || st.GetErrorCode() != reason {
			t.Errorf("%v, want %s with %d %s", st, state, code, reason)
		}
	}
	const failedState, cancelled = agboxv1.ExecState_EXEC_STATE_FAILED, agboxv1.ExecState_EXEC_STATE_CANCELLED

	d.sh(id, "echo kept >/shared/note; touch /tmp/kept")
	x := d.exec(id, "sh", "-c", "echo out; echo err >&2; exit 7")
	wants(x, failedState, 7, "EXEC_RUN_FAILED")
	if got := d.read(x.GetStdoutLogPath()) + d.read(x.GetStderrLogPath()); got != "out\nerr\n" {
		t.Errorf("its output is %q", got)
	}
	begun := time.Now()
	for range 10 {
		d.sh(id, "true")
	}
	t.Logf("10 execs, one after another: %s", time.Since(begun))

	// Orphans in a session of their own, one of which ignores TERM.
	x = d.exec(id, "sh", "-c", "(setsid sh -c 'trap \"\" TERM; sleep 4242; sleep 4243' &) ; setsid sleep 4244 & echo up; exec sleep 4245")
	d.says(x, "up\n")
	if _, err := d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: x.GetExecId()}); err != nil {
		t.Fatal(err)
	}
	wants(x, cancelled, 143, "")
	if left := d.sh(id, "ps | grep 'sleep 42[4]' || true"); left != "" {
		t.Errorf("the cancel left %s", left)
	}

	x = d.exec(id, "sh", "-c", "echo up; while [ ! -e /workspace/go ]; do sleep 0.1; done; echo done; exit 5")
	d.says(x, "up\n")
	d.restart()
	if st := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: x.GetExecId()}))(t).GetExec(); st.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("after kill -9 of agboxd it is %v", st)
	}
	d.kill()
	d.start()
	d.sh(id, "touch /workspace/go")
	wants(x, failedState, 5, "EXEC_RUN_FAILED")
	if got := d.read(x.GetStdoutLogPath()); got != "up\ndone\n" {
		t.Errorf("its output is %q", got)
	}

	// The supervisor's end is not seen in its lock: PID 1 tells of it, once nothing of the tree is left.
	wants(d.exec(id, "sh", "-c", "setsid sleep 4246 & kill -9 $PPID; sleep 4247"), failedState, 0, "EXEC_LOST")
	if left := d.sh(id, "ps | grep 'sleep 42[4]' || true"); left != "" {
		t.Errorf("the lost exec left %s", left)
	}

	x = d.exec(id, "sh", "-c", "echo up; exec sleep 1000")
	d.says(x, "up\n")
	d.audit() // of an exec whose lock the auditor does not see either
	d.stopBox(id)
	d.await(id, stopped)
	if st := d.ended(x.GetExecId()); st.GetState() != cancelled {
		t.Errorf("after the stop it is %v", st)
	}
	d.resume(id)
	d.await(id, ready)
	d.sh(id, "test -e /workspace/go -a -e /tmp/kept")
	d.freeze(id)
	d.halt(id) // it takes no signal while it is frozen
	d.resume(id)

	// No event reports an exec that ends with its container.
	x = d.exec(id, "sh", "-c", "echo up; exec sleep 1000")
	d.says(x, "up\n")
	d.docker("kill", "agbox-primary-"+id)
	wants(x, failedState, 0, "EXEC_LOST")
	d.remove(id)
}

// says waits until an exec has printed a text.
func (d *daemon) says(x *agboxv1.CreateExecResponse, text string) {
	d.Helper()
	d.eventually("exec "+x.GetExecId()+" says "+text, func() error {
		data, err := os.ReadFile(x.GetStdoutLogPath())
		if err == nil && string(data) != text {
			err = fmt.Errorf("it says %q", data)
		}
		return err
	})
}
