//go:build docker

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const outOfMemory = "killed: out of memory (limit 48MiB)"

// TestOutOfMemoryIsReportedForExecsAndSandboxes: whose process was killed says so, the sandbox stays READY, and one whose PID 1 dies
// of it never says "exited with code 137".
func TestOutOfMemoryIsReportedForExecsAndSandboxes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	doomed, killed := d.create(&agboxv1.CreateSpec{MemoryLimit: "48MiB"}), d.create(&agboxv1.CreateSpec{MemoryLimit: "48MiB"})
	for _, id := range []string{doomed, killed} {
		d.await(id, ready)
		st := d.ended(d.exec(id, "tail", "/dev/zero").GetExecId())
		if st.GetState() != ruined || st.GetError() != outOfMemory || !st.GetOomKilled() || st.GetOomKills() < 1 || st.GetExitCode() != 137 {
			t.Errorf("the hog: %v", st)
		}
	}
	st := d.ended(d.exec(doomed, "sh", "-c", "tail /dev/zero; true").GetExecId())
	if st.GetState() != finished || st.GetOomKills() != 1 || st.GetOomKilled() || st.GetError() != "" {
		t.Errorf("the parent of a hog: %v", st)
	}
	st = d.ended(d.exec(doomed, "sh", "-c", "tail /dev/zero; exit 3").GetExecId())
	if want := "the command exited with code 3; meanwhile a process of the sandbox was " + outOfMemory; st.GetError() != want {
		t.Errorf("the failed parent of a hog: %v", st)
	}
	st = d.ended(d.exec(doomed, "dd", "if=/dev/zero", "of=/dev/shm/f", "bs=64k").GetExecId())
	if st.GetState() != ruined || !strings.Contains(d.read(st.GetStderrLogPath()), "No space left") {
		t.Errorf("a file in /dev/shm: %v", st)
	}
	if size := d.sh(doomed, "df -k /dev/shm | tail -n 1 | awk '{ print $2 }'"); size != "24576\n" {
		t.Errorf("/dev/shm has %s KiB", size)
	}
	for _, id := range []string{doomed, killed} {
		if d.state(id) != ready {
			t.Errorf("%s: %v", id, d.state(id))
		}
	}
	// As the kernel does it: without a call of the engine.
	pid := must(strconv.Atoi(strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Pid}}", naming.Primary(doomed)))))(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.failsWith(doomed, "CONTAINER_OOM", "the primary container was "+outOfMemory)
	d.docker("kill", naming.Primary(killed))
	d.await(killed, failed)
	d.remove(doomed)
	d.remove(killed)
}

// TestOperationsAtTheMemoryLimit: a hook that is killed fails its create and says why; a sandbox whose memory is full is paused and resumed,
// and its execs are cancelled; a prompt of an agent that is killed is given once more.
func TestOperationsAtTheMemoryLimit(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	limit := func(s *agboxv1.CreateSpec) *agboxv1.CreateSpec {
		s.MemoryLimit = "48MiB"
		return s
	}
	db := web("db", 0)
	db.PostStartOnPrimary = []string{"tail /dev/zero"}
	hooked := d.create(limit(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}}))

	full := d.create(limit(&agboxv1.CreateSpec{}))
	d.await(full, ready)
	// Half of the limit is in /dev/shm, and a loop of hogs takes the rest and is killed, again and again. The loop lowers its own score: while the
	// pages of a hog that was killed still count, the kernel may kill another command.
	d.ended(d.exec(full, "dd", "if=/dev/zero", "of=/dev/shm/f", "bs=64k").GetExecId())
	hogs := d.exec(full, "sh", "-c", `until grep -qx 750 /proc/$$/oom_score_adj; do sleep 0.02; done; sleep 1; echo 1 >/proc/$$/oom_score_adj
		while :; do (echo 1000 >/proc/self/oom_score_adj; exec tail /dev/zero); echo killed; done`)
	d.started(hogs)
	d.eventually("one is killed", func() error {
		if out := d.read(hogs.GetStdoutLogPath()); !strings.Contains(out, "killed") {
			return fmt.Errorf("it has printed %q", out)
		}
		return nil
	})
	must(d.PauseSandbox(d.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: full}))(t)
	d.await(full, paused)
	d.resume(full)
	must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: hogs.GetExecId()}))(t)
	if st := d.ended(hogs.GetExecId()); st.GetState() != ended {
		t.Errorf("the exec that was cancelled: %v", st)
	}
	d.halt(full)

	d.failsWith(hooked, "SANDBOX_CREATE_FAILED", outOfMemory)
	d.remove(hooked)

	c := &crew{daemon: d, box: d.create(limit(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{
		{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"},
	}}))}
	d.await(c.box, ready)
	id := c.hire("greedy", "native", "native", func(s *agboxv1.AgentSpec) {
		s.Command = []string{"sh", "-c", `if [ $AGBOX_INCARNATION = 1 ]; then
			echo '{"type":"ready"}'; read -r prompt; echo "$prompt" >>/workspace/given; exec tail /dev/zero; fi
			exec /bin/testagent native`}
	})
	c.tell(id, "fact", "remember a plum")
	c.agentIs(id, "killed", func(a *agboxv1.AgentHandle) bool {
		return strings.Contains(a.GetStatusMessage(), "in its turn: "+outOfMemory)
	})
	c.awaitLife(id, 2)
	c.agentIs(id, "done", func(a *agboxv1.AgentHandle) bool { return a.GetState() == agentIdle && a.GetQueuedPrompts() == 0 })
	if got := d.sh(c.box, "grep -c plum /workspace/given"); got != "1\n" {
		t.Errorf("the process that was killed was given the prompt %s times", got)
	}
	if st := d.ended(id + ".1"); !st.GetOomKilled() {
		t.Errorf("%v", st)
	}
	if got := c.ask(id, "asked", "what did I say?"); got != "you said: a plum" {
		t.Errorf("it says %q", got)
	}
	d.remove(full)
	d.remove(c.box)
}
