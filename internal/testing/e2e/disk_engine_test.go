//go:build docker

package e2e

import (
	"fmt"
	"net/http"
	"os"
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

// TestAFullDiskOfTheEngine: what a sandbox writes to its own files fills the engine's disk.
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
	flood := d.exec(culprit, "sh", "-c", "cat /dev/zero >/workspace/fill; sleep 1000")
	d.eventually("the engine's disk is full", func() error {
		var st syscall.Statfs_t
		err := syscall.Statfs(dir, &st)
		if err == nil && st.Bavail*uint64(st.Bsize) > 256<<10 {
			err = fmt.Errorf("%d blocks are left", st.Bavail)
		}
		return err
	})
	d.refusesNew(other)
	d.wantPage("/readyz", http.StatusServiceUnavailable, "[-]disk: the disk of the Docker engine", "\nnot ready\n")
	d.wantPage("/metrics", http.StatusOK, `agboxd_disk_low{disk="docker"} 1`, `agboxd_disk_low{disk="data"} 0`)
	d.halt(third)
	d.restart()
	d.remove(culprit)
	if st := d.ended(flood.GetExecId()); st.GetState() != ended {
		t.Errorf("the flood: %v", st)
	}
	d.acceptsAgain(other)
	d.sh(other, "echo room >/workspace/note")
	d.resume(third)
	for _, id := range []string{other, third} {
		if s := d.state(id); s != agboxv1.SandboxState_SANDBOX_STATE_READY {
			t.Errorf("%s is %s", id, s)
		}
		d.remove(id)
	}
}
