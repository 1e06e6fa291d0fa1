//go:build docker

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// What clients of other systems saw go wrong; docs/past-faults.md has the whole list.

const deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED

func (d *daemon) running(id string) string {
	return strings.TrimSpace(d.docker("inspect", "-f", "{{.State.Running}}", naming.Primary(id)))
}

func TestIDsThatLookAlikeLiveSideBySide(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	base := "e2e" + strings.ToLower(rand.Text()[:10])
	ids := []string{base + "-a_b", base + "-a-b", base + "-a__b", base + "-a--b", base + "-A-b"}
	for _, id := range ids {
		req := &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: baseImage}}
		must(d.CreateSandbox(d.ctx(), req))(t)
	}
	for _, id := range ids {
		d.await(id, ready)
		d.sh(id, "echo "+id+" >/workspace/me")
	}
	for i, gone := range ids[:len(ids)-1] {
		d.remove(gone)
		for _, id := range ids[i+1:] {
			if got := d.sh(id, "cat /workspace/me"); got != id+"\n" {
				t.Errorf("after the delete of %s, %s says %q", gone, id, got)
			}
		}
	}
	d.remove(ids[len(ids)-1])
}

func TestADeleteDuringACreateNeverResurrects(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	var ids []string
	for i := range 12 {
		id := d.create(nil)
		time.Sleep(time.Duration(i) * 40 * time.Millisecond) // the moment of the delete is what varies
		if i%3 == 0 {
			d.restart()
		}
		must(d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id}))(t)
		d.await(id, deleted)
		ids = append(ids, id)
	}
	time.Sleep(1500 * time.Millisecond) // a resync, which is when it would come back
	for _, id := range ids {
		types := d.types(id)
		if s := d.state(id); s != deleted || d.held(id) != "" || !strings.HasSuffix(types, "DELETE_REQUESTED DELETED") ||
			strings.Contains(types, "FAILED") {
			t.Errorf("%s is %s, holds %q: %s", id, s, d.held(id), types)
		}
	}
}

func TestExecsThatRaceWithAStopStartNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	for range 3 {
		d.await(id, ready)
		d.raceExecsWithAStop(id)
		if got := d.running(id); got != "false" {
			t.Errorf("the container runs: %s", got)
		}
		must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
	}
	if types := d.types(id); strings.Contains(types, "SANDBOX_FAILED") || strings.Contains(types, "STOPPED EXEC") {
		t.Errorf("got %s", types)
	}
	d.await(id, ready)
	d.remove(id)
}

// raceExecsWithAStop returns when the sandbox is stopped. All execs that were accepted have ended by then, cancelled or
// with the result that they had before.
func (d *daemon) raceExecsWithAStop(id string) {
	d.Helper()
	var mu sync.Mutex
	var accepted []string
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 { // ends with the first refusal
				e, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "1000"}})
				if isCode(err, codes.FailedPrecondition) {
					return
				} else if err != nil {
					d.Error(err)
					return
				}
				mu.Lock()
				accepted = append(accepted, e.GetExecId())
				mu.Unlock()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	d.stopBox(id)
	wg.Wait()
	d.await(id, stopped)
	for _, execID := range accepted {
		st := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: execID}))(d).GetExec()
		if st.GetState() != ended {
			d.Errorf("of %d execs %s is %s %s", len(accepted), execID, st.GetState(), st.GetError())
		}
	}
}

// asNobody runs a command as the user nobody, who can do what every user of the host can do.
func asNobody(command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd.Run()
}

func TestOtherUsersOfTheHostReadNothingAndLogsGoWithTheSandbox(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("acting as another user needs root")
	}
	t.Parallel()
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	logs := filepath.Join(home, "logs")
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDaemonIn(t, home, "", fmt.Sprintf("[artifacts]\nexec_output_root = %q\n", logs))
	id := d.create(&agboxv1.CreateSpec{Envs: map[string]string{"TOKEN": "secret"}})
	d.await(id, ready)
	e := d.exec(id, "echo", "private words")
	d.ended(e.GetExecId())
	if got := d.read(e.GetStdoutLogPath()); got != "private words\n" || filepath.Dir(filepath.Dir(e.GetStdoutLogPath())) != logs {
		t.Errorf("%s: %q", e.GetStdoutLogPath(), got)
	}
	if err := asNobody("ls", home); err != nil {
		t.Fatalf("the test itself shuts the others out: %v", err)
	}
	data := home + "/data/agents-sandbox"
	for _, secret := range []string{e.GetStdoutLogPath(), filepath.Dir(e.GetStdoutLogPath()), logs, data, data + "/ids.db", home + "/run/agbox"} {
		if err := asNobody("test", "-r", secret); err == nil {
			t.Errorf("everybody may read %s", secret)
		}
	}
	if err := asNobody("test", "-w", home+"/run/agbox/agboxd.sock"); err == nil {
		t.Error("everybody may call the daemon")
	}
	d.remove(id)
	if left, err := os.ReadDir(logs); err != nil || len(left) > 0 {
		t.Errorf("in the log directory are left %v, %v", left, err)
	}
}

func TestAStopAndACancelDoNotUseUpTheirGrace(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nstop_grace = \"60s\"\ncancel_grace = \"60s\"\n")
	id := d.create(nil)
	d.await(id, ready)
	e := d.exec(id, "sleep", "1000")
	d.started(e)
	start := time.Now()
	d.stopBox(id)
	d.await(id, stopped)
	if took := time.Since(start); took > 30*time.Second { // a bound that says "not the grace", not a speed
		t.Errorf("took %s", took)
	}
	d.remove(id)
}

func TestACancelReachesTheWholeTree(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\ncancel_grace = \"1s\"\n")
	id := d.create(nil)
	d.await(id, ready)
	e := d.exec(id, "sh", "-c", `trap "" TERM
		setsid sh -c 'setsid sleep 4711 </dev/null >/dev/null 2>&1 & exit 0'
		setsid sh -c 'trap "" TERM; while :; do sleep 4712; done' &
		echo here; while :; do sleep 4713; done`)
	d.eventually("all of the tree runs", func() error {
		if top := d.docker("top", naming.Primary(id)); strings.Count(top, "sleep 471") < 3 || d.read(e.GetStdoutLogPath()) != "here\n" {
			return fmt.Errorf("%s", top)
		}
		return nil
	})
	bystander := d.exec(id, "sleep", "4800")
	d.started(bystander)
	must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: e.GetExecId()}))(t)
	if st := d.ended(e.GetExecId()); st.GetState() != ended {
		t.Errorf("the exec is %s %s", st.GetState(), st.GetError())
	}
	top := d.docker("top", naming.Primary(id)) // CANCELLED is said when the tree is gone
	if strings.Contains(top, "sleep 471") || !strings.Contains(top, "sleep 4800") {
		t.Errorf("after the cancel:\n%s", top)
	}
	d.remove(id)
}
