//go:build docker

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

func (d *daemon) errorCode(id string) string {
	d.Helper()
	return must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(d).GetSandbox().GetErrorCode()
}

// The first resync finds what happened while the daemon was down.
func TestAResyncFindsDeathsWithoutEvents(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1h\"\n") // no later resync helps
	died, missing := d.create(nil), d.create(nil)
	d.await(died, ready)
	d.await(missing, ready)
	d.kill()
	d.docker("kill", naming.Primary(died))
	d.docker("rm", "-f", naming.Primary(missing))
	d.eventually("the engine's list shows the end", func() error {
		if d.docker("ps", "-q", "--filter", "status=running", "--filter", "name="+naming.Primary(died)) != "" {
			return fmt.Errorf("it is still listed as running")
		}
		return nil
	})
	d.start()
	for id, want := range map[string]string{died: "CONTAINER_DIED", missing: "CONTAINER_MISSING"} {
		d.await(id, failed)
		if got := d.errorCode(id) + " " + d.types(id); got != want+" ACCEPTED PREPARING READY FAILED" {
			t.Errorf("got %s", got)
		}
		d.remove(id)
	}
}

// A reboot: all processes are gone, XDG_RUNTIME_DIR with them, and the kernel has another boot ID.
func TestAHostRebootRestartsWhatRan(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("showing the daemon another boot ID needs root")
	}
	t.Parallel()
	d := newDaemon(t, "", "")
	ran, halted, doomed := d.create(nil), d.create(nil), d.create(nil)
	for _, id := range []string{ran, halted, doomed} {
		d.await(id, ready)
	}
	d.sh(ran, "echo kept >/workspace/note")
	d.stopBox(halted)
	d.await(halted, stopped)
	e := d.exec(ran, "sleep", "1000")
	d.started(e)
	d.kill()
	d.docker("kill", naming.Primary(ran), naming.Primary(doomed))
	d.reboot()
	d.start()
	d.eventually("restarted", func() error {
		if types := d.types(ran); types != "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED EXEC_STARTED RESTARTED EXEC_FAILED" &&
			types != "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED EXEC_STARTED EXEC_FAILED RESTARTED" {
			return fmt.Errorf("%s", types)
		}
		return nil
	})
	if code := d.ended(e.GetExecId()).GetErrorCode(); code != "EXEC_LOST" {
		t.Errorf("the exec: %s", code)
	}
	if got := d.sh(ran, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: halted}))(t)
	d.await(halted, ready)
	d.sh(halted, "true")
	for _, id := range []string{ran, halted, doomed} {
		d.remove(id)
	}
}

func (d *daemon) reboot() {
	d.Helper()
	if err := os.RemoveAll(d.home + "/run"); err != nil {
		d.Fatal(err)
	}
	d.boot = filepath.Join(d.home, "boot_id")
	if err := os.WriteFile(d.boot, []byte(rand.Text()+"\n"), 0o600); err != nil {
		d.Fatal(err)
	}
}

// smallDisk is a home for a daemon whose data are on a file system that fill fills to the last page.
func smallDisk(t testing.TB) (home, fill string) {
	t.Helper()
	home = must(os.MkdirTemp("", "agbox-e2e-"))(t)
	data := home + "/data"
	mountSmall(t, home, data, "mount -t tmpfs -o size=24m tmpfs $DATA")
	return home, data + "/fill"
}

func TestAFailureIsRecordedOnAFullDisk(t *testing.T) {
	t.Parallel()
	home, fill := smallDisk(t)
	d := newDaemonIn(t, home, "", "[runtime]\nresync_interval = \"1h\"\n")
	id, other := d.create(nil), d.create(nil)
	d.await(id, ready)
	d.await(other, ready)
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4k").Run() // until the disk is full
	d.refusesNew(other)
	d.docker("kill", naming.Primary(id))
	d.await(id, failed)
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if got := d.errorCode(id) + " " + d.types(id); got != "CONTAINER_DIED ACCEPTED PREPARING READY FAILED" {
		t.Errorf("got %s", got)
	}
	d.acceptsAgain(other)
	d.remove(id)
	d.remove(other)
}
