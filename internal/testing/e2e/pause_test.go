//go:build docker

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

func TestAPausedSandboxStandsStillAndContinues(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	db := web("db", 0)
	id := d.create(&agboxv1.CreateSpec{
		RequiredServices: []*agboxv1.ServiceSpec{db}, OptionalServices: []*agboxv1.ServiceSpec{web("opt", 0)},
	})
	d.await(id, ready)
	d.awaitEvent(id, 1, serviceReady, "opt")
	containers := []string{naming.Primary(id), naming.Service(id, "db"), naming.Service(id, "opt")}
	before := map[string]inspected{}
	for _, c := range containers {
		before[c] = d.inspect(c)
	}
	const lines = 40
	x := d.exec(id, counting(lines)...)
	d.printed(x, 3)
	d.freeze(id)
	stands := d.read(x.GetStdoutLogPath())
	for _, c := range containers {
		if got := d.status(c); got != "paused" {
			t.Errorf("%s is %s", c, got)
		}
	}
	_, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
	if !isCode(err, codes.FailedPrecondition) || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("an exec: %v", err)
	}
	if _, err = d.PauseSandbox(d.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: id}); !isCode(err, codes.FailedPrecondition) ||
		!strings.Contains(err.Error(), "already paused") {
		t.Errorf("another pause: %v", err)
	}
	time.Sleep(3 * time.Second) // a frozen exec prints nothing, which no event tells; a thawed one would print many lines in the time of three probes and resyncs
	if now := d.read(x.GetStdoutLogPath()); now != stands || strings.Count(now, "\n") >= lines {
		t.Errorf("it printed %q, and then %q", stands, now)
	}
	d.resume(id)
	d.wantCounted(x, lines)
	d.sh(id, "sleep 2; "+fetch("db")) // probes again, and resyncs that see what the lists say until then
	for _, c := range containers {
		if now := d.inspect(c); now.State.Pid != before[c].State.Pid || !now.State.StartedAt.Equal(before[c].State.StartedAt) {
			t.Errorf("%s is another run: %v, before %v", c, now.State, before[c].State)
		}
	}
	d.wantRows(id, "ACCEPTED PREPARING SERVICE_READY(db) READY EXEC_STARTED PAUSE_REQUESTED PAUSED ACCEPTED READY EXEC_FAILED"+
		" EXEC_STARTED EXEC_FINISHED", "opt")
	if rows := d.rows(id); strings.Count(rows, "(opt)") != 1 {
		t.Errorf("%s", rows)
	}
	d.remove(id)
}

// auto is a sandbox that an exec wakes.
func (d *daemon) auto() string {
	d.Helper()
	id := d.create(&agboxv1.CreateSpec{AutoResume: true})
	d.await(id, ready)
	d.sh(id, "echo kept >/workspace/note")
	return id
}

func TestAnExecWakesWhatIsPausedWithAutoResume(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[pause]\nmax_frozen = 1\n")
	id, other := d.auto(), d.auto()
	d.freeze(id)
	if got := d.sh(id, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("frozen: %q", got)
	}
	d.freeze(id)
	d.freeze(other) // now too many are frozen
	d.awaitDemoted(id)
	if got := d.sh(id, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("stopped: %q", got)
	}
	d.await(id, ready)
	if s := d.state(other); s != paused || d.sandbox(other).GetDemotedAt() != nil {
		t.Errorf("the other one is %s, stopped since %v", s, d.sandbox(other).GetDemotedAt())
	}
	d.remove(id)
	d.remove(other)
}

// An exec that was accepted just before the pause runs before it, or after the resume; once, and to its end.
func TestExecsAcceptedJustBeforeAPauseRunOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	const times = 10
	for i := range times {
		x := d.exec(id, "sh", "-c", "echo x >>/workspace/ran; exit 3")
		d.freeze(id)
		var wg sync.WaitGroup
		for range 4 { // all of which succeed
			wg.Go(func() {
				if _, err := d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil && d.state(id) != ready {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		d.await(id, ready)
		if st := d.ended(x.GetExecId()); st.GetExitCode() != 3 {
			t.Errorf("round %d: %s, %s", i, st.GetState(), st.GetError())
		}
	}
	if got := d.sh(id, "wc -l </workspace/ran"); strings.TrimSpace(got) != fmt.Sprint(times) {
		t.Errorf("%s of %d ran", got, times)
	}
	// The end of an exec may be recorded between a pause and the resume.
	if rows := d.rows(id); strings.Count(rows, " PAUSED") != times || strings.Count(rows, " ACCEPTED") != times {
		t.Errorf("%s", rows)
	}
	d.remove(id)
}

func TestWhatOthersDoToAPausedSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1h\"\n")
	id := d.create(nil)
	d.await(id, ready)
	d.docker("pause", naming.Primary(id))
	d.sh(id, "true") // it was thawed: no client has asked for a pause
	d.freeze(id)
	d.docker("unpause", naming.Primary(id))
	d.awaitStatus(id, "paused")
	d.resume(id)
	d.sh(id, "true")
	if rows := d.types(id); strings.Count(rows, "PAUSED") != 1 {
		t.Errorf("%s", rows)
	}
	d.freeze(id)
	d.docker("kill", naming.Primary(id))
	d.failsWith(id, "CONTAINER_DIED", "while the sandbox was paused")
	d.remove(id)
}
