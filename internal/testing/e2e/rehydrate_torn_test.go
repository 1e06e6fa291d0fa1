//go:build docker

package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// damage spoils a file of the log, mostly what follows the snapshot: cut or with a wrong bit, anywhere.
func (d *daemon) damage(r *rand.Rand) {
	d.Helper()
	kind := "log/segment-*"
	if r.IntN(4) == 0 {
		kind = "log/snapshot-*"
	}
	for _, path := range must(filepath.Glob(d.data(kind)))(d) {
		b := []byte(d.read(path))
		at := r.IntN(len(b))
		if r.IntN(2) == 0 {
			b = b[:at]
		} else {
			b[at] ^= 1 << r.IntN(8)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			d.Fatal(err)
		}
	}
}

// startedAt is when the primary was started, and whether it runs.
func (d *daemon) startedAt(id string) string {
	return strings.TrimSpace(d.docker("inspect", "-f", "{{.State.StartedAt}} {{.State.Running}}", naming.Primary(id)))
}

// Stopped sandboxes stay stopped and running ones keep running, whatever state a damaged log has for them.
func TestADamagedLogBringsNothingUpAndStopsNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	own := d.create(&agboxv1.CreateSpec{Command: []string{"sh", "-c", `trap "exit 3" TERM; while :; do sleep 0.1; done`}, RestartPolicy: "always"})
	halted, again, runs := d.create(nil), d.create(nil), d.create(nil)
	all := []string{own, halted, again, runs}
	for _, id := range all {
		d.await(id, ready)
	}
	d.halt(runs)
	d.resume(runs)
	e := d.exec(runs, "sh", "-c", "while [ ! -e /workspace/go ]; do sleep 0.1; done; exit 5")
	d.started(e)
	d.halt(own)
	d.halt(halted)
	d.halt(again)
	d.resume(again)
	d.halt(again)
	began := map[string]string{}
	for _, id := range all {
		began[id] = d.startedAt(id)
	}
	for seed := range uint64(6) {
		d.killLogged()
		d.lose(theDatabase)
		d.damage(rand.New(rand.NewPCG(seed, 11)))
		d.start()
		for _, id := range all {
			want := stopped
			if id == runs {
				want = ready
			}
			d.eventually("it is back", func() error {
				_, err := d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id})
				return err
			})
			d.await(id, want) // a stop that was accepted is carried out again
			if at := d.startedAt(id); at != began[id] {
				t.Errorf("seed %d: started at %s, was %s", seed, at, began[id])
			}
		}
	}
	d.sh(runs, "touch /workspace/go")
	if code := d.ended(e.GetExecId()).GetExitCode(); code != 5 {
		t.Errorf("the exec ended with %d", code)
	}
	d.resume(halted)
	for _, id := range all {
		d.remove(id)
	}
}
