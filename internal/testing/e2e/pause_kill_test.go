//go:build docker

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// The daemon dies at random moments of pauses and resumes. What runs in the sandbox notices neither.
func TestKilledDuringPauseAndResume(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	const lines = 600 // a minute that it runs; more than the rounds leave it
	pid := d.inspect(naming.Primary(id)).State.Pid
	x := d.exec(id, counting(lines)...)
	for i := range rounds / 2 {
		d.pauseBox(id)
		d.killSometime(200 * time.Millisecond)
		d.await(id, paused)
		if got := d.status(naming.Primary(id)); got != "paused" {
			t.Errorf("round %d: the primary is %s", i, got)
		}
		must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
		d.killSometime(200 * time.Millisecond)
		d.await(id, ready)
	}
	must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: x.GetExecId()}))(t)
	if st := d.ended(x.GetExecId()); st.GetState() != ended {
		t.Errorf("the exec is %s (%s)", st.GetState(), st.GetError())
	}
	for i, line := range strings.Fields(d.read(x.GetStdoutLogPath())) {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %s", i+1, line)
		}
	}
	want := "ACCEPTED PREPARING READY EXEC_STARTED" + strings.Repeat(" PAUSE_REQUESTED PAUSED ACCEPTED READY", rounds/2) + " EXEC_CANCELLED"
	d.wantRows(id, want)
	if now := d.inspect(naming.Primary(id)).State.Pid; now != pid {
		t.Errorf("the primary is another run")
	}
	d.remove(id)
}

// A frozen sandbox with an exec is stopped, or deleted, and the daemon dies in the middle of that.
func TestKilledDuringStopAndDeleteOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	for i := range rounds / 4 {
		x := d.exec(id, "sleep", "1000")
		d.started(x)
		d.freeze(id)
		d.stopBox(id)
		d.killSometime(400 * time.Millisecond)
		d.await(id, stopped)
		if st := d.ended(x.GetExecId()); st.GetState() != ended {
			t.Errorf("round %d: the exec is %s (%s)", i, st.GetState(), st.GetError())
		}
		d.resume(id)

		doomed := d.create(nil)
		d.await(doomed, ready)
		d.exec(doomed, "sleep", "1000")
		d.freeze(doomed)
		must(d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: doomed}))(t)
		d.killSometime(400 * time.Millisecond)
		d.await(doomed, deleted)
		if held := d.held(doomed); held != "" {
			t.Errorf("round %d: %s is left", i, held)
		}
	}
	if rows := d.types(id); strings.Contains(rows, "FAILED") || strings.Count(rows, "PAUSED STOP_REQUESTED") != rounds/4 {
		t.Errorf("%s", rows)
	}
	d.remove(id)
}
