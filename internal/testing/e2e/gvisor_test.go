//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/host/naming"
)

// servesFrom waits until a published port answers with a name, as seen from the network namespace of a private engine.
func (d *daemon) servesFrom(e *dockerd.Engine, port uint32, name string) {
	d.Helper()
	d.eventually(fmt.Sprintf("port %d serves %s", port, name), func() error {
		url := fmt.Sprintf("http://127.0.0.1:%d/name", port)
		out, err := exec.CommandContext(d.ctx(), "nsenter", "--net="+e.Netns(), "busybox", "wget", "-qO-", url).Output()
		if err == nil && string(out) != name+"\n" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}

// gVisorsServices takes a sandbox with services, ports and a main process through pauses, kill -9 of agboxd, and a stop.
func gVisorsServices(t *testing.T, d *daemon, e *dockerd.Engine) {
	spec := listening(0)
	spec.Runtime = "names"
	spec.RequiredServices[0].PostStartOnPrimary = []string{fetch("db") + " >/workspace/hook"}
	spec.OptionalServices = []*agboxv1.ServiceSpec{web("opt", 0)}
	id := d.create(spec)
	d.await(id, ready)
	if !d.private(id) {
		t.Fatal("the host sees the locks: this test would show nothing")
	}
	d.awaitEvent(id, 1, serviceReady, "opt")
	serves := func() {
		t.Helper()
		if got := d.sh(id, "cat /workspace/hook; "+fetch("db")+" 2>&1; "+fetch("opt")+" 2>&1 || true"); got != "db\ndb\nopt\n" {
			t.Errorf("by their names, the services say %q", got)
		}
		ports := map[string]uint32{}
		d.eventually("ports", func() error {
			for _, p := range d.sandbox(id).GetPorts() {
				ports[p.GetServiceName()] = p.GetHostPort()
			}
			if len(ports) != 2 {
				return fmt.Errorf("%v", ports)
			}
			return nil
		})
		d.servesFrom(e, ports[""], "primary")
		d.servesFrom(e, ports["db"], "db")
	}
	serves()
	if w := d.sandbox(id).GetWarnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	gVisorsPause(t, d, id)
	serves()
	d.halt(id)
	d.resume(id)
	d.awaitEvent(id, 2, serviceReady, "opt") // after READY
	serves()
	d.remove(id)
}

// gVisorsPause pauses a sandbox while an exec counts, and kills agboxd meanwhile.
func gVisorsPause(t *testing.T, d *daemon, id string) {
	t.Helper()
	const lines = 40
	x := d.exec(id, counting(lines)...)
	d.printed(x, 3)
	d.freeze(id)
	stands := d.read(x.GetStdoutLogPath())
	d.restart()
	time.Sleep(2 * time.Second) // that a frozen exec prints nothing is no event to wait for: it would print many lines in this time
	if now := d.read(x.GetStdoutLogPath()); now != stands || strings.Count(now, "\n") >= lines || d.state(id) != paused {
		t.Errorf("%s, it printed %q, and then %q", d.state(id), stands, now)
	}
	if st := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: x.GetExecId()}))(t).GetExec(); st.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("while it is paused, the exec is %v", st)
	}
	d.resume(id)
	d.wantCounted(x, lines)
}

// gVisorsNetstack: with gVisor's own network stack no name resolves. That is said, and services, which are found by their names, are
// refused.
func gVisorsNetstack(t *testing.T, d *daemon, e *dockerd.Engine) {
	id := d.create(&agboxv1.CreateSpec{
		Runtime: "runsc", Ports: []*agboxv1.PortSpec{{ContainerPort: 8080}},
		Command: []string{"sh", "-c", "mkdir -p /tmp/w; echo primary >/tmp/w/name; exec httpd -f -p 8080 -h /tmp/w"},
	})
	with := d.create(&agboxv1.CreateSpec{Runtime: "runsc", OptionalServices: []*agboxv1.ServiceSpec{web("db", 0)}})
	d.await(id, ready)
	if w := fmt.Sprint(d.sandbox(id).GetWarnings()); !strings.Contains(w, "no host name resolves") || !strings.Contains(w, "--network=host") {
		t.Errorf("warnings: %s", w)
	}
	d.eventually("the port", func() error {
		if len(d.sandbox(id).GetPorts()) == 0 {
			return errors.New("is not shown")
		}
		return nil
	})
	d.servesFrom(e, d.sandbox(id).GetPorts()[0].GetHostPort(), "primary")
	gVisorsPause(t, d, id)
	d.remove(id)
	d.await(with, failed)
	if m := d.sandbox(with).GetErrorMessage(); !strings.Contains(m, "runtime runsc can't be used") || !strings.Contains(m, "--network=host") {
		t.Errorf("with a service: %s", m)
	}
	d.remove(with)
}

// gVisorsAgents: they remember after the death of agboxd and their own, a pause, and a stop.
func gVisorsAgents(t *testing.T, d *daemon) {
	tool := &agboxv1.MountSpec{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"}
	c := &crew{daemon: d, box: d.create(&agboxv1.CreateSpec{Runtime: "runsc", Mounts: []*agboxv1.MountSpec{tool}})}
	d.await(c.box, ready)
	c.remember()
	c.restart()
	for _, f := range formats {
		c.kill9(f.id)
		c.awaitLife(f.id, 2)
	}
	d.freeze(c.box)
	d.resume(c.box)
	remember := func(when string, life uint64) {
		t.Helper()
		for _, f := range formats {
			c.awaitLife(f.id, life)
			if got := c.ask(f.id, when, "what did I say?"); got != "you said: a plum" {
				t.Errorf("%s: %s says %q", when, f.id, got)
			}
		}
	}
	remember("killed-and-paused", 2)
	d.halt(c.box)
	d.resume(c.box)
	remember("stopped", 3)
	d.remove(c.box)
}

// gVisorsHardened: no process has a capability, and PID 1 still ends what it must.
func gVisorsHardened(t *testing.T, d *daemon) {
	for _, user := range []string{"", "0"} {
		id := d.create(withProfile("hardened", &agboxv1.CreateSpec{Runtime: "runsc", User: user}))
		d.await(id, ready)
		if got := strings.TrimSpace(d.sh(id, showPrivilege)); got != noPrivilege {
			t.Errorf("user %q: an exec has %s", user, got)
		}
		x := d.exec(id, "sh", "-c", "trap '' TERM; echo up; sleep 1000000 & wait")
		d.says(x, "up\n")
		must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: x.GetExecId()}))(t)
		if st := d.ended(x.GetExecId()); st.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
			t.Errorf("user %q: %v", user, st)
		}
		d.remove(id)
	}
}

// gVisorsMemory: the kernel of the host sees one process, and kills it.
func gVisorsMemory(t *testing.T, d *daemon) {
	id := d.create(&agboxv1.CreateSpec{Runtime: "runsc", MemoryLimit: "256MiB"})
	d.await(id, ready)
	x := d.exec(id, "sh", "-c", "head -c 1000000000 /dev/zero | tail")
	if st := d.ended(x.GetExecId()); st.GetErrorCode() != "EXEC_LOST" {
		t.Errorf("the exec: %v", st)
	}
	d.await(id, failed)
	if sb := d.sandbox(id); sb.GetErrorCode() != "CONTAINER_OOM" {
		t.Errorf("the sandbox: %s %s", sb.GetErrorCode(), sb.GetErrorMessage())
	}
	d.remove(id)
}

// gVisorsLimits: those of CPU, memory and processes bound what the host sees, which are gVisor's own threads. A limit of the disk is
// watched where the engine's storage can't keep it.
func gVisorsLimits(t *testing.T, d *daemon) {
	id := d.create(&agboxv1.CreateSpec{Runtime: "runsc", CpuLimit: 0.5, MemoryLimit: "256MiB", PidsLimit: 150})
	d.await(id, ready)
	if got := d.limits(naming.Primary(id)); got != "50000/100000 268435456 150" {
		t.Errorf("the kernel keeps %s", got)
	}
	x := d.exec(id, "sh", "-c", "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; wait")
	if st := d.ended(x.GetExecId()); st.GetErrorCode() != "EXEC_LOST" {
		t.Errorf("300 processes: %v", st)
	}
	d.await(id, failed)
	d.remove(id)
	id = d.create(&agboxv1.CreateSpec{Runtime: "runsc", DiskLimit: "64MiB"})
	d.await(id, ready)
	d.exec(id, "sh", "-c", "head -c 104857600 /dev/zero >/tmp/large; sleep 1000")
	d.await(id, stopped)
	if r := d.event(id, agboxv1.EventType_SANDBOX_STOP_REQUESTED, "").GetSandboxPhase().GetReason(); r != "disk_limit" {
		t.Errorf("stopped for %q", r)
	}
	d.remove(id)
}

// gVisorsHangingStart: the starts of two containers hang in their runtime. Other sandboxes work meanwhile; a delete and a resume are
// completed when the engine can, also by the next agboxd.
func gVisorsHangingStart(t *testing.T, d *daemon, hold string) {
	kept, gone := d.create(&agboxv1.CreateSpec{Runtime: "hangs"}), d.create(&agboxv1.CreateSpec{Runtime: "hangs"})
	for _, id := range []string{kept, gone} {
		d.await(id, ready)
		d.sh(id, "echo kept >/workspace/note")
		d.halt(id)
	}
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(hold) })
	for _, id := range []string{kept, gone} {
		must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	}
	d.eventually("the starts hang", func() error {
		if reached, err := os.ReadFile(hold + ".reached"); err != nil || strings.Count(string(reached), "\n") < 2 {
			return fmt.Errorf("reached %q, %w; %s", reached, err, d.sandbox(kept).GetStatusMessage())
		}
		return nil
	})
	must(d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: gone}))(t)
	d.restart()
	other := d.create(&agboxv1.CreateSpec{Runtime: "runsc"})
	d.await(other, ready)
	d.sh(other, "true")
	d.remove(other)
	for _, id := range []string{kept, gone} {
		d.eventually("the status says what is awaited", func() error {
			if m := d.sandbox(id).GetStatusMessage(); !strings.Contains(m, "no answer from the engine") {
				return errors.New(m)
			}
			return nil
		})
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	d.await(gone, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	d.await(kept, ready)
	if got := d.sh(kept, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("its file says %q", got)
	}
	d.remove(kept)
}

// TestGVisorKilledAtFailpoints kills agboxd at the points of a sandbox's life whose kernel is gVisor's, of its volumes and of its snapshots.
func TestGVisorKilledAtFailpoints(t *testing.T) {
	runsc := os.Getenv(runscVariable)
	if runsc == "" {
		t.Skip(runscVariable + " is not set: gVisor's runtime takes minutes to build, see make test-runsc")
	}
	e := newEngine(t, append(runtimes(t, runsc, map[string]string{"runsc": "--overlay2=none --network=host"}), "--default-runtime", "runsc", "--live-restore")...)
	life := []string{
		"CreateSandbox", "CreateExec", "EndExec", "Report", "RequestCancel", "RequestPause", "RequestResume", "RequestStop", "RequestDelete",
		"engine.create_container", "engine.start_container", "engine.stop_container", "engine.remove_container", "engine.write_tar", "engine.stat_path",
		"engine.pause_container", "engine.unpause_container", "rules.add_sets", "rules.remove_sets",
	}
	volumes := []string{"RequestDeleteWithVolumes", "engine.list_volumes", "engine.list_volume_users", "engine.remove_volume"}
	snapshots := []string{"engine.commit_container", "engine.rewrite_image", "engine.list_images", "engine.remove_image"}
	m := newMortalOn(t, e, "[runtime]\nstop_grace = \"2s\"\ncancel_grace = \"1s\"\nresync_interval = \"2s\"\nclock_grace = \"0\"\n",
		slices.Concat(life, volumes, snapshots)...)
	m.rehearse("life", life, m.gVisorsLife)
	m.rehearse("volumes", volumes, m.keepsVolumes)
	m.rehearse("snapshots", snapshots, m.keepsFiles)
	t.Logf("%d deaths", m.deathsYet())
	m.audit() // while it lives: the cleanup ends it first
}

func (m *mortal) gVisorsLife(round string) {
	db := web("db", 0)
	db.PostStartOnPrimary = []string{"echo x >>/workspace/hook"}
	id := m.box(round, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}, Ports: []*agboxv1.PortSpec{{ContainerPort: 8080}}})
	m.await(id, ready)
	m.once(id, round+"-hook", "/workspace/hook")
	m.run(id, round+"-x", "sh", "-c", "echo x >>/tmp/mark; for i in 1 2 3; do echo $i; sleep 0.2; done; exit 3")
	if st := m.ended(round + "-x"); st.GetExitCode() != 3 || st.GetErrorCode() != "EXEC_RUN_FAILED" || m.read(st.GetStdoutLogPath()) != "1\n2\n3\n" {
		m.Errorf("%s: %v", round, st)
	}
	m.run(id, round+"-long", "sleep", "1000")
	must(m.CancelExec(m.ctx(), &agboxv1.CancelExecRequest{ExecId: round + "-long"}))(m)
	if st := m.ended(round + "-long"); st.GetState() != ended {
		m.Errorf("%s: a cancelled exec is %v", round, st)
	}
	for _, stop := range []bool{false, true} {
		m.freeze(id)
		if stop {
			must(m.StopSandbox(m.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}))(m)
			m.await(id, stopped)
		}
		must(m.ResumeSandbox(m.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(m)
		m.await(id, ready)
	}
	m.once(id, round+"-again", "/tmp/mark")
	m.freeze(id)
	m.gone(id)
}
