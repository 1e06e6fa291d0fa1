//go:build docker

package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const outOfMemory = "killed: out of memory (limit 48MiB)"

// TestOutOfMemoryIsToldOfExecsAndSandboxes: whose process was killed says so, the sandbox stays READY, and one whose PID 1 dies
// of it never says "exited with code 137".
func TestOutOfMemoryIsToldOfExecsAndSandboxes(t *testing.T) {
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
