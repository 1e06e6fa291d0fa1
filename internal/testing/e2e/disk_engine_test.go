//go:build docker

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// TestAFullDiskOfTheEngine: what a sandbox writes to its own files fills the engine's disk. Execs of others write their output and end; a
// pause, a stop and a delete need no room. A create and a resume wait, and say why, until there is room, also over a restart.
func TestAFullDiskOfTheEngine(t *testing.T) {
	for kind, script := range map[string]string{"ext4": onExt4("192m"), "tmpfs": "mount -t tmpfs -o size=192m none $DATA"} {
		t.Run(kind, func(t *testing.T) {
			disk := must(os.MkdirTemp("", "agbox-ed-"))(t)
			mountSmall(t, disk, disk+"/d", script)
			fillTheEnginesDisk(t, disk+"/d")
		})
	}
}

func fillTheEnginesDisk(t *testing.T, dir string) {
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	t.Setenv("TMPDIR", dir)
	e := newEngine(t)
	t.Setenv("TMPDIR", "")
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
	d.eventually("the create says why it waits", func() error {
		if sb := d.sandbox(waits); sb.GetState() != pending || !strings.Contains(sb.GetStatusMessage(), "the disk of the Docker engine") {
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
