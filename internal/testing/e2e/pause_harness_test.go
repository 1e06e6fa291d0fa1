//go:build docker

package e2e

import (
	"fmt"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const paused = agboxv1.SandboxState_SANDBOX_STATE_PAUSED

func (d *daemon) pauseBox(id string) {
	d.Helper()
	must(d.PauseSandbox(d.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: id}))(d)
}

// freeze asks for a pause and waits.
func (d *daemon) freeze(id string) {
	d.Helper()
	d.pauseBox(id)
	d.await(id, paused)
}

// status is the engine's word on a container.
func (d *daemon) status(container string) string {
	return strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Status}}", container))
}

// awaitStatus waits until the engine says so of the primary.
func (d *daemon) awaitStatus(id, want string) {
	d.Helper()
	d.eventually("the primary is "+want, func() error {
		if got := d.status(naming.Primary(id)); got != want {
			return fmt.Errorf("is %s", got)
		}
		return nil
	})
}

// awaitDemoted waits until a paused sandbox is stopped instead of frozen, with its event.
func (d *daemon) awaitDemoted(id string) {
	d.Helper()
	d.eventually(id+" is stopped and paused still", func() error {
		sb, last := d.sandbox(id), ""
		for _, e := range d.events(id) {
			if e.GetEventType() == agboxv1.EventType_SANDBOX_PAUSED {
				last = e.GetSandboxPhase().GetReason()
			}
		}
		if sb.GetState() != paused || sb.GetDemotedAt() == nil || last != "demoted" {
			return fmt.Errorf("is %s, stopped since %v, told %q", sb.GetState(), sb.GetDemotedAt(), last)
		}
		return nil
	})
	if got := d.status(naming.Primary(id)); got != "exited" {
		d.Errorf("the primary is %s", got)
	}
}

// counting is a command that prints the numbers from 1 and ends with code 7.
func counting(to int) []string {
	return []string{"sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; sleep 0.1; done; exit 7", to)}
}

// wantCounted checks that it ran once, to its end, and that no line of it is lost.
func (d *daemon) wantCounted(e *agboxv1.CreateExecResponse, to int) {
	d.Helper()
	st := d.ended(e.GetExecId())
	if st.GetState() != ruined || st.GetErrorCode() != "EXEC_RUN_FAILED" || st.GetExitCode() != 7 {
		d.Errorf("it is %s, code %d, %s", st.GetState(), st.GetExitCode(), st.GetError())
	}
	var want strings.Builder
	for i := range to {
		fmt.Fprintln(&want, i+1)
	}
	if got := d.read(e.GetStdoutLogPath()); got != want.String() {
		d.Errorf("it printed %q", got)
	}
}

// printed waits until an exec has printed some lines.
func (d *daemon) printed(e *agboxv1.CreateExecResponse, lines int) {
	d.Helper()
	d.started(e)
	d.eventually("the exec prints", func() error {
		if n := strings.Count(d.read(e.GetStdoutLogPath()), "\n"); n < lines {
			return fmt.Errorf("%d lines", n)
		}
		return nil
	})
}
