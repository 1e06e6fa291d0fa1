//go:build docker

package e2e

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/naming"
)

// TestDeathsDuringTheDaemonsStartAreFound spreads deaths over the start of the daemon, its subscription and its first
// list included.
func TestDeathsDuringTheDaemonsStartAreFound(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1h\"\n") // no later resync helps
	ids := make([]string, 8)
	for i := range ids {
		ids[i] = d.create(nil)
	}
	for _, id := range ids {
		d.await(id, ready)
	}
	d.kill()
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, id := range ids {
			wg.Go(func() { d.docker("kill", naming.Primary(id)) })
			time.Sleep(40 * time.Millisecond) // the moment is what varies
		}
	})
	d.start()
	wg.Wait()
	for _, id := range ids {
		d.await(id, failed)
		if got := d.errorCode(id) + " " + d.types(id); got != "CONTAINER_DIED ACCEPTED PREPARING READY FAILED" {
			t.Errorf("got %s", got)
		}
		d.remove(id)
	}
}

func TestAFullDiskKeepsNoDaemonFromStarting(t *testing.T) {
	t.Parallel()
	home, fill := smallDisk(t)
	d := newDaemonIn(t, home, "", "")
	id := d.create(nil)
	d.await(id, ready)
	d.kill()
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4k").Run() // until the disk is full
	d.start()
	if s := d.state(id); s != ready {
		t.Errorf("the sandbox is %s", s)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	d.acceptsAgain(id)
	d.remove(id)
}
