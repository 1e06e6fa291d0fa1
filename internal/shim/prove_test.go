package shim

import (
	"path/filepath"
	"testing"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// TestOnlyTheProofRunsBeforeTheRelease: its journal and those of later execs have the same run ID; another start of the container has
// another one.
func TestOnlyTheProofRunsBeforeTheRelease(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.args = []string{"--gated", "--probe"}
	early := b.start(b.sh("exit 4"))
	proof := b.request("/bin/sh", "-c", "echo proof; exec sleep 1000")
	proof.ExecID = execid.Runtime
	b.boot()
	b.start(proof)
	b.says(proof, "proof\n")
	if s := b.look(early); s.Phase != execphase.NotStarted {
		t.Errorf("an exec is %s before the release", s.Phase)
	}
	b.cancel(proof)
	run := b.ended(proof).Run
	must(t, b.dir.Release(sandbox))
	if j := b.ended(early); run == "" || j.Run != run || j.ExitCode != 4 {
		t.Errorf("run %q, then %+v", run, j)
	}
	lost := b.start(b.sh("echo up; exec sleep 1000"))
	b.says(lost, "up\n")
	b.killSupervisor(lost)
	b.until("PID 1 to ring", func() bool { return exists(filepath.Join(b.paths.Logs, execjournal.LostName(lost.ExecID))) })
	b.stop()
	b.boot()
	if j := b.ended(b.start(b.sh("exit 0"))); j.Run == "" || j.Run == run {
		t.Errorf("the next run is %q after %q", j.Run, run)
	}
}
