//go:build docker

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// agbox runs the CLI against the daemon.
func (d *daemon) agbox(args ...string) string {
	d.Helper()
	cmd := exec.Command(filepath.Join(binaries, "agbox"), args...)
	cmd.Env = append(cmd.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run")
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.Errorf("agbox %v: %v", args, err)
	}
	return string(out)
}

// named records a sandbox with a main process.
func (d *daemon) named(name string, spec *agboxv1.CreateSpec) string {
	d.Helper()
	spec.Image = baseImage
	req := &agboxv1.CreateSandboxRequest{Name: name, CreateSpec: spec}
	return must(d.CreateSandbox(d.ctx(), req))(d).GetSandbox().GetSandboxId()
}

func TestTheMainProcessAndItsOutput(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{
		User: "nobody", WorkingDir: "/tmp",
		Command: []string{"sh", "-c", `trap "echo told to stop; exit 0" TERM; id -un; pwd; echo "$@" >&2; while :; do sleep 0.1; done`, "-", "a b", "c"},
	})
	d.await(id, ready)
	prints := func(times int) {
		d.eventually("it prints", func() error {
			if got := d.agbox("logs", "web"); strings.Count(got, "nobody\n/tmp\n") < times || strings.Count(got, "a b c\n") < times {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	prints(1)
	if got := d.sh(id, "id -un; pwd"); got != "nobody\n/tmp\n" {
		t.Errorf("an exec is %q", got)
	}
	d.halt(id)
	d.wantRows(id, "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED STOP_REQUESTED STOPPED")
	if got := d.read(d.sandbox(id).GetStdoutLogPath()); got != "nobody\n/tmp\ntold to stop\n" {
		t.Errorf("it printed %q", got)
	}
	d.resume(id)
	prints(2) // READY comes before the program's first line, and a stop may come before it too
	d.halt(id)
	if got := d.read(d.sandbox(id).GetStdoutLogPath()); got != strings.Repeat("nobody\n/tmp\ntold to stop\n", 2) {
		t.Errorf("after two runs it has printed %q", got)
	}
	d.remove(id)
}

func TestTheEndOfTheMainProcessIsTheSandboxs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	ends := d.named("ends", &agboxv1.CreateSpec{Command: []string{"sh", "-c", "echo last words; sleep 1; exit 42"}})
	absent := d.named("absent", &agboxv1.CreateSpec{Command: []string{"/no/such/program"}})
	d.failsWith(ends, "CONTAINER_DIED", "42")
	d.wantRows(ends, "ACCEPTED PREPARING READY FAILED")
	if got := d.agbox("logs", "ends"); got != "last words\n" {
		t.Errorf("logs: %q", got)
	}
	d.await(absent, failed)
	if got := d.sandbox(absent).GetErrorMessage() + d.agbox("logs", "absent"); !strings.Contains(got, "/no/such/program") {
		t.Errorf("neither the error nor the log names it: %q", got)
	}
	d.remove(ends)
	d.remove(absent)
}

func TestTheLogsOfExecsAreBounded(t *testing.T) {
	t.Parallel()
	const limit, printed = 4096, 200000
	d := newDaemon(t, "", fmt.Sprintf("[artifacts]\nexec_log_max_bytes = \"%d\"\n", limit))
	drop, kill := d.create(nil), d.create(&agboxv1.CreateSpec{OnLogLimit: "kill"})
	d.await(drop, ready)
	d.await(kill, ready)
	x := d.exec(drop, "sh", "-c", fmt.Sprintf("yes | head -c %d; echo few >&2", printed))
	st := d.ended(x.GetExecId())
	if st.GetState() != finished || st.GetStdoutDroppedBytes() != printed-limit || st.GetStderrDroppedBytes() != 0 {
		t.Errorf("%v", st)
	}
	want := strings.Repeat("y\n", limit/2) + execjournal.DroppedMarker(limit)
	if got := d.read(x.GetStdoutLogPath()); got != want || d.read(x.GetStderrLogPath()) != "few\n" {
		t.Errorf("the log has %d bytes and ends in %q", len(got), got[max(0, len(got)-100):])
	}
	y := d.exec(kill, "sh", "-c", "yes; echo never")
	if st := d.ended(y.GetExecId()); st.GetState() != ruined || st.GetErrorCode() != "EXEC_LOG_LIMIT" || !strings.Contains(st.GetError(), "limit") {
		t.Errorf("%v", st)
	}
	d.sh(kill, "true")
	d.remove(drop)
	d.remove(kill)
}
