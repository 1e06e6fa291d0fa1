//go:build docker

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// cgroup is where the host keeps the files of one controller for a container: those of the first version, or those of the
// second, in which all controllers share one directory.
func (d *daemon) cgroup(container, controller string) (dir string, second bool) {
	d.Helper()
	for line := range strings.Lines(d.read(fmt.Sprintf("/proc/%d/cgroup", d.inspect(container).State.Pid))) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if part[1] == controller {
			return filepath.Join("/sys/fs/cgroup", controller, part[2]), false
		}
		if part[0] == "0" {
			dir = filepath.Join("/sys/fs/cgroup", part[2])
		}
	}
	return dir, true
}

// limits is what the kernel holds a container to: "quota/period bytes pids".
func (d *daemon) limits(container string) string {
	d.Helper()
	file := func(controller string, first, second string) string {
		dir, isSecond := d.cgroup(container, controller)
		if isSecond {
			first = second
		}
		return strings.TrimSpace(d.read(filepath.Join(dir, first)))
	}
	cpu := file("cpu", "cpu.cfs_quota_us", "cpu.max")
	if quota, period, ok := strings.Cut(cpu, " "); ok {
		cpu = quota + "/" + period
	} else {
		cpu += "/" + file("cpu", "cpu.cfs_period_us", "")
	}
	return cpu + " " + file("memory", "memory.limit_in_bytes", "memory.max") + " " + file("pids", "pids.max", "pids.max")
}

func limited(cpu float64, memory string, pids uint32) *agboxv1.CreateSpec {
	db := web("db", 0)
	db.CpuLimit, db.MemoryLimit, db.PidsLimit = cpu/2, memory, pids
	return &agboxv1.CreateSpec{
		Image: baseImage, CpuLimit: cpu, MemoryLimit: memory, PidsLimit: pids, RequiredServices: []*agboxv1.ServiceSpec{db},
	}
}

// wantLimits waits for those of the primary and of its service, whose CPU is half of it.
func (d *daemon) wantLimits(id, primary, service string) {
	d.Helper()
	d.eventually("limits", func() error {
		if p, s := d.limits(naming.Primary(id)), d.limits(naming.Service(id, "db")); p != primary || s != service {
			return fmt.Errorf("the primary has %s, the service %s", p, s)
		}
		return nil
	})
}

func (d *daemon) update(id string, spec *agboxv1.CreateSpec) []string {
	d.Helper()
	return must(d.UpdateSandbox(d.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: spec}))(d).GetChangedFields()
}

func TestLimitsHoldInTheKernelAndChangeInPlace(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(limited(0.5, "64MiB", 100))
	d.await(id, ready)
	before := d.inspect(naming.Primary(id))
	d.wantLimits(id, "50000/100000 67108864 100", "25000/100000 67108864 100")
	changed := d.update(id, limited(1, "96MiB", 200))
	if got, want := strings.Join(changed, " "), "cpu_limit memory_limit pids_limit required_services[db].cpu_limit "+
		"required_services[db].memory_limit required_services[db].pids_limit"; got != want {
		t.Errorf("changed %s", got)
	}
	d.wantLimits(id, "100000/100000 100663296 200", "50000/100000 100663296 200")
	d.halt(id)
	d.update(id, limited(0.2, "60MiB", 128))
	d.kill() // what was accepted is applied whatever dies
	d.start()
	d.resume(id)
	d.wantLimits(id, "20000/100000 62914560 128", "10000/100000 62914560 128")
	if after := d.inspect(naming.Primary(id)); after.ID != before.ID {
		t.Errorf("the container was replaced")
	}
	if rows := d.rows(id); strings.Count(rows, "SPEC_CHANGED") != 2 || strings.Contains(rows, "FAILED") {
		t.Errorf("%s", rows)
	}
	d.remove(id)
}

// TestAMemoryLimitIsNotLoweredBelowWhatOutlivesProcesses: the least limit is named, and with it PID 1 lives although everything that is
// fixed in the container is full.
func TestAMemoryLimitIsNotLoweredBelowWhatOutlivesProcesses(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	for made, least := range map[string]string{"256MiB": "124MiB", "": "72MiB"} {
		spec := func(limit string) *agboxv1.CreateSpec {
			return &agboxv1.CreateSpec{Image: baseImage, MemoryLimit: limit}
		}
		id := d.create(spec(made))
		d.await(id, ready)
		_, err := d.UpdateSandbox(d.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: spec("48MiB")})
		if !isCode(err, codes.FailedPrecondition) || !strings.Contains(err.Error(), "choose "+least+" or more, or apply with --replace") {
			t.Fatalf("made with %q: %v", made, err)
		}
		d.update(id, spec(least))
		d.eventually("the limit is in force", func() error { // the kernel refuses one that is below what is used just now
			has := strings.TrimSpace(d.docker("inspect", "-f", "{{.HostConfig.Memory}}", naming.Primary(id)))
			if n, err := strconv.ParseInt(has, 10, 64); err != nil || n == 0 || n > 124<<20 {
				return fmt.Errorf("it is %s bytes", has)
			}
			return nil
		})
		d.exec(id, "dd", "if=/dev/zero", "of=/dev/shm/f", "bs=64k")
		for range 2 {
			st := d.ended(d.exec(id, "tail", "/dev/zero").GetExecId())
			if !st.GetOomKilled() {
				t.Errorf("made with %q: the hog: %v", made, st)
			}
		}
		for range 5 {
			d.sh(id, "true")
		}
		if d.state(id) != ready {
			t.Errorf("made with %q: %v", made, d.state(id))
		}
		d.remove(id)
	}
}

// TestAFullDevLeavesRoomForPID1: root can fill /dev, whose 64 MiB the engine fixes. A limit of 192 MiB has room for it beside /dev/shm.
func TestAFullDevLeavesRoomForPID1(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{Image: baseImage, MemoryLimit: "192MiB", User: "root"})
	d.await(id, ready)
	for _, dir := range []string{"/dev/shm", "/dev"} {
		d.sh(id, "dd if=/dev/zero of="+dir+"/f bs=64k; test $(stat -c %s "+dir+"/f) -ge 67000000")
	}
	for range 3 {
		if st := d.ended(d.exec(id, "tail", "/dev/zero").GetExecId()); !st.GetOomKilled() {
			t.Errorf("the hog: %v", st)
		}
		d.sh(id, "true")
	}
	if d.state(id) != ready {
		t.Errorf("it is %s", d.state(id))
	}
	d.remove(id)
}

// TestTheEndForWantOfMemoryIsNamed wherever the engine knows of it: on a busy machine containerd's shim loses the kernel's notice now
// and then when the container ends at the same moment.
func TestTheEndForWantOfMemoryIsNamed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	greedy := []string{"sh", "-c", "x=aaaaaaaa; while :; do x=$x$x; done"}
	known := func(container string) bool {
		return strings.TrimSpace(d.docker("inspect", "-f", "{{.State.OOMKilled}}", container)) == "true"
	}
	tries := func(try func() (told bool)) {
		t.Helper()
		for range 5 {
			if try() {
				return
			}
		}
		t.Error("the engine never told of a container that was killed for memory")
	}
	tries(func() bool {
		id := d.create(&agboxv1.CreateSpec{MemoryLimit: "32MiB", Command: greedy})
		defer d.remove(id)
		d.await(id, failed)
		told := known(naming.Primary(id))
		if told {
			d.failsWith(id, "CONTAINER_OOM", "memory")
		}
		return told
	})
	tries(func() bool {
		id := d.create(&agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{
			{Name: "eater", Image: baseImage, MemoryLimit: "32MiB", Command: greedy},
		}})
		defer d.remove(id)
		d.awaitEvent(id, 1, serviceFailed, "eater")
		told := known(naming.Service(id, "eater"))
		if f := d.event(id, serviceFailed, "eater").GetService(); told && f.GetErrorCode() != "CONTAINER_OOM" {
			t.Errorf("%v", f)
		}
		if d.state(id) != ready {
			t.Errorf("its sandbox is %s", d.state(id))
		}
		return told
	})
}

func TestAtThePidsLimitAnExecCanBeCancelled(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{PidsLimit: 64})
	d.await(id, ready)
	// The inner shell ends when it can't fork; what it has started stays, and so does the exec.
	x := d.exec(id, "sh", "-c", `sh -c "while :; do sleep 1000000 & done"; exec sleep 1000000`)
	dir, _ := d.cgroup(naming.Primary(id), "pids")
	d.eventually("the limit is reached", func() error {
		if refused := d.read(filepath.Join(dir, "pids.events")); refused == "max 0\n" {
			return fmt.Errorf("there are %s", d.read(filepath.Join(dir, "pids.current")))
		}
		return nil
	})
	must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: x.GetExecId()}))(t)
	if st := d.ended(x.GetExecId()); st.GetState() != ended {
		t.Errorf("the exec is %s %s", st.GetState(), st.GetError())
	}
	d.sh(id, "true") // there is room again
	d.remove(id)
}

func TestAMainProcessThatEndsIsRestartedLessAndLessOften(t *testing.T) {
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{RestartPolicy: "always", Command: []string{"sh", "-c", "echo run >>/workspace/runs; sleep 0.2; echo no more work >&2; exit 7"}})
	restarted := agboxv1.EventType_SANDBOX_RESTARTED
	d.awaitEvent(id, 3, restarted, "")
	var at []time.Time
	for _, e := range d.events(id) {
		if e.GetEventType() == restarted {
			at = append(at, e.GetOccurredAt().AsTime())
			if e.GetSandboxPhase().GetReason() != "restart_policy" || e.GetSandboxState() != ready {
				t.Errorf("%v", e)
			}
			if p := e.GetSandboxPhase(); p.GetExitCode() != 7 || !strings.HasPrefix(p.GetEndMessage(), "the primary container exited with code 7; its output ends: no more work") {
				t.Errorf("it says %d %q", p.GetExitCode(), p.GetEndMessage())
			}
		}
	}
	for i, least := range []time.Duration{2 * time.Second, 4 * time.Second} {
		if gap := at[i+1].Sub(at[i]); gap < least || gap > least+4*time.Second {
			t.Errorf("restart %d came after %s", i+2, gap)
		}
	}
	if sb := d.sandbox(id); sb.GetState() != ready || sb.GetRestarts() < 3 {
		t.Errorf("%s, %d restarts", sb.GetState(), sb.GetRestarts())
	}
	if rows := d.rows(id); strings.Contains(rows, "FAILED") {
		t.Errorf("%s", rows)
	}
	d.halt(id)
	d.remove(id)
}
