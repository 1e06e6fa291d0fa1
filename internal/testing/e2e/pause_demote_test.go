//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

func TestLongPausedSandboxesAreStoppedThenDeleted(t *testing.T) {
	d := newDaemon(t, "", "[pause]\nfreeze_duration = \"2s\"\nstopped_gc_after = \"4s\"\n")
	id, back := d.create(nil), d.create(nil)
	d.await(id, ready)
	d.await(back, ready)
	d.sh(back, "echo kept >/workspace/note")
	x := d.exec(back, "sleep", "1000")
	d.started(x)
	d.freeze(id)
	d.freeze(back)
	d.awaitDemoted(back)
	if st := d.ended(x.GetExecId()); st.GetState() != ended {
		t.Errorf("its exec is %s %s", st.GetState(), st.GetError())
	}
	d.resume(back)
	if got := d.sh(back, "cat /workspace/note"); got != "kept\n" || d.sandbox(back).GetDemotedAt() != nil {
		t.Errorf("it holds %q, stopped since %v", got, d.sandbox(back).GetDemotedAt())
	}
	d.await(id, deleted)
	if e := d.event(id, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, ""); e.GetSandboxPhase().GetReason() != "stopped_gc" {
		t.Errorf("deleted for %q", e.GetSandboxPhase().GetReason())
	}
	d.wantRows(id, "ACCEPTED PREPARING READY PAUSE_REQUESTED PAUSED PAUSED DELETE_REQUESTED DELETED")
	if held := d.held(id); held != "" {
		t.Errorf("%s is left", held)
	}
	d.remove(back)
}

// A resume that comes while the sandbox is being stopped, slowly, waits for the end of that, and starts it.
func TestAResumeDuringADemotion(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[pause]\nmax_frozen = 1\n")
	slow := []string{"sh", "-c", `trap "sleep 2; echo told to stop; exit 0" TERM; echo begun; while :; do sleep 0.1; done`}
	id, other := d.named("slow", &agboxv1.CreateSpec{Command: slow}), d.create(nil)
	d.await(id, ready)
	d.await(other, ready)
	d.sh(id, "echo kept >/workspace/note")
	d.freeze(id)
	d.freeze(other)
	d.eventually("it is being stopped", func() error {
		if d.sandbox(id).GetDemotedAt() == nil || d.status(naming.Primary(id)) != "running" {
			return errors.New("not yet")
		}
		return nil
	})
	d.resume(id)
	if got := d.sh(id, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("it holds %q", got)
	}
	d.eventually("its main process runs again", func() error {
		if got := d.read(d.sandbox(id).GetStdoutLogPath()); got != "begun\ntold to stop\nbegun\n" {
			return fmt.Errorf("it printed %q", got)
		}
		return nil
	})
	d.wantRows(id, "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED PAUSE_REQUESTED PAUSED ACCEPTED READY EXEC_STARTED EXEC_FINISHED")
	d.remove(id)
	d.remove(other)
}

// The daemon dies during demotions, of which each has an exec to end first.
func TestKilledDuringDemotions(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[pause]\nmax_frozen = 1\n")
	ids := [2]string{d.create(nil), d.create(nil)}
	d.await(ids[0], ready)
	d.await(ids[1], ready)
	d.freeze(ids[0])
	for i := range rounds / 4 {
		next, last := ids[(i+1)%2], ids[i%2]
		x := d.exec(next, "sleep", "1000")
		d.pauseBox(next) // which demotes the other
		d.killSometime(600 * time.Millisecond)
		d.awaitDemoted(last)
		d.await(next, paused)
		if d.sandbox(next).GetDemotedAt() != nil {
			t.Errorf("round %d: the newest is stopped", i)
		}
		d.resume(last)
		if st, err := d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: x.GetExecId()}); err != nil || st.GetExec().GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
			t.Errorf("round %d: the exec of the frozen one: %v %v", i, st, err)
		}
	}
	for _, id := range ids {
		if rows := d.types(id); strings.Contains(rows, "FAILED") {
			t.Errorf("%s", rows)
		}
		d.remove(id)
	}
}
