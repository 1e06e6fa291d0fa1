//go:build docker

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// engineOnASmallDisk mounts a file system and puts what the test starts below TMPDIR on it.
func engineOnASmallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	home := must(os.MkdirTemp("", "agbox-ed-"))(t)
	dir = home + "/d"
	mountSmall(t, home, dir, onExt4(size))
	return dir
}

// TestAFullDiskOfTheEngine: what a sandbox writes to its own files fills the engine's disk. Execs of others write their output and end. A
// create that was accepted before waits, and says why, until there is room.
func TestAFullDiskOfTheEngine(t *testing.T) {
	dir := engineOnASmallDisk(t, "192m")
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
	d.eventually("the engine's disk is full", func() error {
		var st syscall.Statfs_t
		err := syscall.Statfs(dir, &st)
		if err == nil && st.Bavail*uint64(st.Bsize) > 256<<10 {
			err = fmt.Errorf("%d blocks are left", st.Bavail)
		}
		return err
	})
	d.wantPage("/metrics", http.StatusOK, `agboxd_disk_low{disk="docker"} 1`)
	e.Thaw()
	d.refusesNew(other)
	d.docker("exec", "agbox-primary-"+other, "touch", "/dev/shm/go")
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
	d.halt(third)
	d.restart()
	d.remove(culprit)
	if st := d.ended(flood.GetExecId()); st.GetState() != ended {
		t.Errorf("the flood: %v", st)
	}
	d.acceptsAgain(other)
	d.await(waits, ready)
	d.sh(other, "echo room >/workspace/note")
	d.resume(third)
	for _, id := range []string{other, third, waits} {
		if s := d.state(id); s != agboxv1.SandboxState_SANDBOX_STATE_READY {
			t.Errorf("%s is %s", id, s)
		}
		d.remove(id)
	}
}
