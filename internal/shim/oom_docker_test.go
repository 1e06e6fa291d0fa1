//go:build docker

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/ipcbounds"
)

// builtHog is the directory of the program hog, which allocates memory of the kernel.
var builtHog = sync.OnceValues(func() (string, error) { return build("hog", "./testdata/hog") })

// oomKilled is the exit code of a command that the kernel killed.
const oomKilled = 128 + int(unix.SIGKILL)

// hogs use up a container's memory, each in a different way, and all of them end. SHARE in a script stands for one and a half hundredths of
// the limit, in bytes.
var hogs = []struct {
	name, script string
	exitCode     int // of a script that reaches its end; oomKilled: none does
}{
	{"malloc", `exec tail /dev/zero`, oomKilled},
	{"malloc of a child", `tail /dev/zero`, 3},
	{"malloc of a child under a pipe", `cat /dev/zero | tail`, 4},
	{"file in /dev/shm", `dd if=/dev/zero of=/dev/shm/f bs=64k`, 5},
	{"files in /dev/shm of many", `for i in 1 2 3 4 5 6; do dd if=/dev/zero of=/dev/shm/f$i bs=64k & done; wait`, 6},
	{"file in /tmp", `dd if=/dev/zero of=/tmp/f bs=64k count=4096`, 7},
	{"many small processes", `i=0; while [ $i -lt 100 ]; do (x=$(head -c SHARE /dev/zero | tr '\0' x); sleep 1) & i=$((i+1)); done; wait`, 8},
	{"detached child that outlives its exec", `setsid sh -c 'sleep 0.3; tail /dev/zero' &`, 9},
	{"segments", `/hog/hog segments; exec tail /dev/zero`, oomKilled},
	{"segments of many", `for i in 1 2 3 4; do /hog/hog segments wait & done; /hog/hog segments; exec tail /dev/zero`, oomKilled},
	{"segments that are attached", `/hog/hog attached; exec tail /dev/zero`, oomKilled},
	{"message queues", `/hog/hog queues; exec tail /dev/zero`, oomKilled},
	{"semaphores", `/hog/hog semaphores; exec tail /dev/zero`, oomKilled},
	{"POSIX message queues", `/hog/hog mqueues; exec tail /dev/zero`, oomKilled},
	{"empty files in /dev/shm", `/hog/hog files; exec tail /dev/zero`, oomKilled},
	{"all that outlives processes", `for h in segments queues semaphores mqueues; do /hog/hog $h; done; dd if=/dev/zero of=/dev/shm/f bs=64k; exec tail /dev/zero`, oomKilled},
	{"/dev/shm full, and then malloc", `dd if=/dev/zero of=/dev/shm/f bs=64k; exec tail /dev/zero`, oomKilled},
}

// TestContainerOutOfMemoryHitsTheWorkload: however the memory is used up, PID 1 lives, each exec gets its true end, and the next one runs.
// The truth is outside of the shim: a script that reaches its end writes its exit code to a file.
func TestContainerOutOfMemoryHitsTheWorkload(t *testing.T) {
	bin, err := builtHog()
	must(t, err)
	for _, limit := range []int{32, 48, 128} {
		for _, hog := range hogs {
			t.Run(fmt.Sprintf("%d MiB, %s", limit, hog.name), func(t *testing.T) {
				truth := t.TempDir()
				must(t, os.Chmod(truth, 0o777)) // commands are not root
				c := newContainer(t, append(bounded(limit), "-v", bin+":/hog:ro", "-v", truth+":/truth")...)
				innocent := c.start(c.sh("echo $$; exec sleep 1000"))
				pid := c.says(innocent, "\n")
				script := strings.ReplaceAll(hog.script, "SHARE", fmt.Sprint((limit<<20)*3/200))
				r := c.start(c.sh(fmt.Sprintf("%s\necho %d >/truth/code; exit %[2]d", script, hog.exitCode)))
				var s execjournal.Status
				c.within(3*time.Minute, "the hog to end", func() bool { // hundreds of processes that are killed again and again
					s = c.look(r)
					return s.Phase == execphase.Ended || s.Phase == execphase.Lost // Lost if PID 1 is gone
				})
				t.Logf("hog: %v %+v", s.Phase, s.Journal)
				want := oomKilled
				if wrote, err := os.ReadFile(filepath.Join(truth, "code")); err == nil && len(wrote) > 0 {
					want = hog.exitCode
				}
				if hog.exitCode == oomKilled && want != oomKilled {
					t.Fatal("the hog used no memory")
				}
				wantEnd(t, s, want)
				if strings.HasPrefix(hog.name, "detached") {
					c.until("the kernel to kill it", func() bool { return c.oomKills() > 0 })
				}
				if running := c.inspect("{{.State.Running}}"); running != "true" {
					t.Fatal("PID 1 died")
				}
				if strings.HasPrefix(hog.name, "many small") { // they outlive a killed shell, and the kernel kills only some of them each second
					c.within(3*time.Minute, "its processes to end", func() bool { return len(c.hostPids()) < 10 })
				}
				if j, _ := c.do(c.request("true")); j.ExitCode != 0 {
					t.Errorf("the next exec: %+v", j)
				}
				if j, out := c.do(c.sh("kill -0 " + pid)); j.ExitCode != 0 {
					t.Logf("the innocent exec: %s", out)
					c.ended(innocent)
					wantEnd(t, c.look(innocent), oomKilled)
				} else if is := c.look(innocent); is.Phase != execphase.Running {
					t.Errorf("the innocent exec lives: %v, %+v", is.Phase, is.Journal)
				}
			})
		}
	}
}

// wantEnd reports an error unless the exec ended with the given exit code and, if that is oomKilled, for lack of memory.
func wantEnd(t *testing.T, s execjournal.Status, code int) {
	t.Helper()
	killed, signal := code == oomKilled, 0
	if killed {
		signal = int(unix.SIGKILL)
	}
	if j := s.Journal; s.Phase != execphase.Ended || j.ExitCode != code || j.Signal != signal || j.OOM != killed || killed && j.OOMKills == 0 {
		t.Errorf("the true exit code is %d, recorded: %v, %+v", code, s.Phase, j)
	}
}

// fills allocate memory that outlives processes, each as much as it can.
var fills = map[string]string{
	"a file":        `dd if=/dev/zero of=/dev/shm/f bs=64k`,
	"empty files":   `/hog/hog files`,
	"segments":      `/hog/hog segments`,
	"queues":        `/hog/hog queues`,
	"semaphores":    `/hog/hog semaphores`,
	"POSIX queues":  `/hog/hog mqueues`,
	"all and twice": `for i in 1 2; do dd if=/dev/zero of=/dev/shm/f bs=64k; for h in segments queues semaphores mqueues files; do /hog/hog $h; done; done`,
}

// TestContainerManyStartsWithFullMemory: no kill frees the allocated memory, and many execs start at once. Each end is recorded truthfully,
// and the later execs run.
func TestContainerManyStartsWithFullMemory(t *testing.T) {
	bin, err := builtHog()
	must(t, err)
	for _, limit := range []int{32, 48, 128} {
		for name, fill := range fills {
			t.Run(fmt.Sprintf("%d MiB, %s", limit, name), func(t *testing.T) {
				c := newContainer(t, append(bounded(limit), "-v", bin+":/hog:ro")...)
				c.do(c.sh(fill))
				_, out := c.do(c.sh(fill))
				t.Logf("%q", out)
				c.manyStarts(30)
				if j, _ := c.do(c.request("true")); j.ExitCode != 0 {
					t.Errorf("the next exec: %+v", j)
				}
			})
		}
	}
}

// manyStarts starts n execs at once.
func (c *container) manyStarts(n int) {
	c.Helper()
	var all []execjournal.Request
	for range n {
		all = append(all, c.start(c.sh("sleep 1")))
	}
	ends := make(map[string]int)
	for _, r := range all {
		var s execjournal.Status
		c.until("an end", func() bool {
			s = c.look(r)
			return s.Phase == execphase.Ended || s.Phase == execphase.Lost || c.inspect("{{.State.Running}}") == "false"
		})
		ends[fmt.Sprintf("%v, OOM %v, %s", s.Phase, s.Journal.OOM, s.Journal.ErrorCode)]++
		if s.Phase != execphase.Ended || s.Journal.ExitCode != 0 && !s.Journal.OOM && s.Journal.ErrorCode == "" {
			c.Fail()
		}
	}
	c.Log(ends)
	if c.inspect("{{.State.Running}}") != "true" {
		c.Fatal("PID 1 died")
	}
}

// bounded returns the options of a container with a memory limit in MiB, as agboxd creates it.
func bounded(limit int) []string {
	size, b := fmt.Sprintf("%dm", limit), ipcbounds.Of(int64(limit)<<20)
	options := []string{"--memory", size, "--memory-swap", size, "--tmpfs", fmt.Sprintf("/dev/shm:size=%d,nr_inodes=%d", b.ShmBytes, b.ShmFiles)}
	for name, value := range b.Sysctls() {
		options = append(options, "--sysctl", name+"="+value)
	}
	return options
}

// TestContainerReportsKilledChildren: the end of an exec that was not killed itself has the number of processes that the kernel killed.
func TestContainerReportsKilledChildren(t *testing.T) {
	c := newContainer(t, "--memory", "48m", "--memory-swap", "48m")
	for script, code := range map[string]int{"tail /dev/zero; exit 0": 0, "tail /dev/zero; exit $?": 137, "tail /dev/zero || exit 1": 1} {
		j, _ := c.do(c.sh(script))
		if j.ExitCode != code || j.OOM || j.OOMKills != 1 || j.OOMLimitBytes != 48<<20 {
			t.Errorf("%s: %+v", script, j)
		}
	}
	if j, _ := c.do(c.request("true")); j.OOMKills != 0 || j.OOMLimitBytes != 0 {
		t.Errorf("the next one: %+v", j)
	}
}

// oomKills returns the number of processes of the container that the kernel killed for lack of memory, read on the host: the engine reports
// them only when the container has exited.
func (c *container) oomKills() int64 {
	c.Helper()
	root := "/proc/" + c.inspect("{{.State.Pid}}") + "/root/sys/fs/cgroup/"
	for _, file := range []string{"memory/memory.oom_control", "memory.events"} {
		if data, err := os.ReadFile(root + file); err == nil {
			return numbers(string(data))["oom_kill"]
		}
	}
	return 0
}
