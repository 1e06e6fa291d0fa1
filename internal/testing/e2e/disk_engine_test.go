//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/host/naming"
)

// TestAFullDiskOfTheEngine: what a sandbox writes to its own files fills the engine's disk. Execs of others write their output and end; a
// pause, a stop and a delete need no room. A create and a resume wait, and say why, until there is room, also over a restart.
func TestAFullDiskOfTheEngine(t *testing.T) {
	t.Parallel()
	for kind, script := range map[string]string{"ext4": onExt4("192m"), "btrfs": onBtrfs("256m"), "tmpfs": "mount -t tmpfs -o size=192m none $DATA"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			disk := must(os.MkdirTemp("", "agbox-ed-"))(t)
			mountSmall(t, disk, disk+"/d", script)
			run := ""
			if kind == "btrfs" { // containerd can't clean up there, and refuses each later start until it restarts
				run = must(os.MkdirTemp("/run", "agbox-ed-"))(t)
				t.Cleanup(func() { _ = os.RemoveAll(run) })
			}
			fillTheEnginesDisk(t, disk+"/d", run)
		})
	}
}

// fillTheEnginesDisk: the engine's data are in dir; so is the state of its running containers, unless run, usually /run, is another directory.
func fillTheEnginesDisk(t *testing.T, dir, run string) {
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	e := newEngineIn(t, dir)
	if run != "" {
		moveOut(t, e, dir, "exec", run)
	}
	d := prepared(t, home)
	d.host, d.http = e.Host(), freeAddress(t)
	d.start()
	culprit, other, third := d.create(nil), d.create(nil), d.create(nil)
	for _, id := range []string{culprit, other, third} {
		d.await(id, ready)
	}
	d.started(d.exec(third, "sleep", "1000"))
	ends := d.exec(other, "sh", "-c", "while ! test -e /dev/shm/go; do sleep 0.1; done; echo end; exit 7")
	d.started(ends)
	flood := d.exec(culprit, "sh", "-c", "while ! test -e /dev/shm/go; do sleep 0.1; done; cat /dev/zero >/workspace/fill; sleep 1000")
	d.started(flood)
	ballast := dir + "/ballast"
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	e.Freeze() // so that the disk is full before the engine creates anything for the next sandbox
	waits := d.create(nil)
	d.sh(culprit, "touch /dev/shm/go")
	d.eventually("the engine's disk is full", func() error { return full(dir) })
	d.wantPage("/metrics", http.StatusOK, `agboxd_disk_low{disk="docker"} 1`)
	e.Thaw()
	d.refusesNew(other)
	gate := fmt.Sprintf("/proc/%d/root/dev/shm/go", d.inspect(naming.Primary(other)).State.Pid) // an exec of the engine needs room on its disk
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if st := d.ended(ends.GetExecId()); st.GetExitCode() != 7 || st.GetState() != ruined || d.read(st.GetStdoutLogPath()) != "end\n" {
		t.Errorf("the exec of another sandbox: %v", st)
	}
	d.eventually("the create says why it waits", func() error { // a full btrfs refuses even its network
		sb := d.sandbox(waits)
		why := sb.GetStatusMessage()
		if sb.GetState() != pending || !strings.Contains(why, "the disk of the Docker engine") && !strings.Contains(why, "no space left") {
			return fmt.Errorf("%s, %q", sb.GetState(), sb.GetStatusMessage())
		}
		return nil
	})
	d.wantPage("/readyz", http.StatusServiceUnavailable, "[-]disk: the disk of the Docker engine", "\nnot ready\n")
	d.wantPage("/metrics", http.StatusOK, `agboxd_disk_low{disk="docker"} 1`, `agboxd_disk_low{disk="data"} 0`)
	d.freeze(other)
	d.resume(other)
	d.halt(third)
	if out, err := exec.Command("dd", "if=/dev/zero", "of="+dir+"/rest", "bs=4k").CombinedOutput(); err == nil { // what the end of its container freed
		t.Fatalf("the disk was not full\n%s", out)
	}
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: third}))(t)
	d.eventually("the engine has tried to start it", func() error {
		if sb := d.sandbox(third); sb.GetState() != pending || !strings.Contains(sb.GetStatusMessage(), "no space left") {
			return fmt.Errorf("%s, %q", sb.GetState(), sb.GetStatusMessage())
		}
		return nil
	})
	d.restart()
	if d.inContainerd() { // its store needs room to remove a container
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	d.remove(culprit)
	if st := d.ended(flood.GetExecId()); st.GetState() != ended {
		t.Errorf("the flood: %v", st)
	}
	d.acceptsAgain(other)
	d.await(waits, ready)
	d.sh(other, "echo room >/workspace/note")
	d.await(third, ready)
	for _, id := range []string{other, third, waits} {
		if s := d.state(id); s != agboxv1.SandboxState_SANDBOX_STATE_READY {
			t.Errorf("%s is %s", id, s)
		}
		d.remove(id)
	}
}

// TestAQuotaOfTheEnginesDisk: statfs(2) does not show a quota, so agboxd goes on with creates and resumes. They wait until there is room,
// and fail no sandbox.
func TestAQuotaOfTheEnginesDisk(t *testing.T) {
	t.Parallel()
	home := must(os.MkdirTemp("", "agbox-eq-"))(t)
	mountSmall(t, home, home+"/d", strings.Replace(withQuota, "64m", "256m", 1))
	run := must(os.MkdirTemp("/run", "agbox-eq-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	e := newEngineIn(t, home+"/d", "--storage-driver=overlay2") // a subvolume of the driver btrfs is not in the quota
	moveOut(t, e, home+"/d", "exec", run)
	d := newDaemon(t, e.Host(), "")
	culprit, halted := d.create(nil), d.create(nil)
	d.await(culprit, ready)
	d.await(halted, ready)
	d.sh(halted, "echo kept >/workspace/note")
	d.halt(halted)
	d.sh(culprit, "cat /dev/zero >/workspace/fill; cat /dev/zero >/workspace/rest; true")
	if err := os.WriteFile(home+"/d/probe", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.EDQUOT) {
		t.Fatalf("a write on the full disk: %v", err)
	}
	waits := d.create(nil)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: halted}))(t)
	for _, id := range []string{waits, halted} {
		d.eventually("the engine has refused it more often than an unknown error is retried", func() error {
			sb, refusals := d.sandbox(id), 0
			for line := range strings.Lines(d.log.tail(1 << 20)) {
				if strings.Contains(line, `"msg":"audit"`) && strings.Contains(line, id) && strings.Contains(line, "disk quota exceeded") {
					refusals++
				}
			}
			if sb.GetState() == failed {
				t.Fatalf("after %d refusals: %s", refusals, sb.GetErrorMessage())
			}
			if why := sb.GetStatusMessage(); sb.GetState() != pending || !strings.Contains(why, "disk quota exceeded") || refusals < 11 {
				return fmt.Errorf("%s, %q, after %d refusals", sb.GetState(), why, refusals)
			}
			return nil
		})
	}
	d.remove(culprit)
	for _, id := range []string{waits, halted} {
		d.await(id, ready)
	}
	if note := d.sh(halted, "cat /workspace/note"); note != "kept\n" {
		t.Errorf("the note is %q", note)
	}
	d.remove(waits)
	d.remove(halted)
}

// TestAnEndpointThatAFullDiskLeftBehind: the engine can't write the records of its networks when a container ends, and keeps the endpoint. The
// next start, or the removal of the network, drops it.
func TestAnEndpointThatAFullDiskLeftBehind(t *testing.T) {
	t.Parallel()
	home := must(os.MkdirTemp("", "agbox-ee-"))(t)
	records := home + "/records"
	mountSmall(t, home, records, onBtrfs("64m"))
	e := newEngineIn(t, home)
	moveOut(t, e, home, "data/network", records)
	d := newDaemon(t, e.Host(), "")
	id := d.create(nil)
	d.await(id, ready)
	stopOnFullDisk := func() {
		for _, block := range []string{"1M", "4k"} {
			_ = exec.Command("dd", "if=/dev/zero", "of="+records+"/fill"+block, "bs="+block, "count=64").Run() // until it is full
		}
		d.halt(id)
		for _, block := range []string{"1M", "4k"} {
			_ = os.Remove(records + "/fill" + block)
		}
		if ends := d.docker("network", "inspect", "-f", "{{json .Containers}}", naming.Network(id)); !strings.Contains(ends, "ep-") {
			t.Fatalf("the engine left no endpoint: %s", ends)
		}
	}
	stopOnFullDisk()
	d.resume(id)
	d.sh(id, "echo alive")
	d.docker("inspect", naming.Primary(id)) // it has its name again
	stopOnFullDisk()
	d.remove(id)
}

// moveOut makes the engine in a directory below dir keep one of its own directories, afresh, at to.
func moveOut(t *testing.T, e *dockerd.Engine, dir, what, to string) {
	t.Helper()
	e.Stop()
	from := must(filepath.Glob(dir + "/agboxd-*/" + what))(t)[0]
	if err := errors.Join(os.RemoveAll(from), os.Symlink(to, from)); err != nil {
		t.Fatal(err)
	}
	e.Start()
}
