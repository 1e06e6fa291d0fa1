//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// rounds is how many random moments each operation is killed at.
const rounds = 20

// killSometime lets the daemon live for a random part of a time that covers the operation, then kills and restarts it.
func (d *daemon) killSometime(within time.Duration) {
	d.Helper()
	time.Sleep(rand.N(within)) // the moment of death is what is random here
	d.restart()
}

func TestKilledDuringCreate(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	for range rounds {
		id := d.create(nil)
		d.killSometime(400 * time.Millisecond)
		d.await(id, ready)
		if got, want := d.types(id), "ACCEPTED PREPARING READY"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		d.remove(id)
	}
}

// TestATimeoutPassesWhileTheDaemonIsAway compares the end of the command with its timeout by the journal: the supervisor ended it, and not
// the daemon that came back.
func TestATimeoutPassesWhileTheDaemonIsAway(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	e := must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{
		SandboxId: id, Command: []string{"sh", "-c", "id -u; trap '' TERM; sleep 1000 & wait; sleep 1000"}, User: "0",
		Timeout: durationpb.New(2 * time.Second),
	}))(d)
	d.eventually("the command runs", func() error {
		if out, err := os.ReadFile(e.GetStdoutLogPath()); err != nil || string(out) != "0\n" {
			return fmt.Errorf("its output is %q, %w", out, err)
		}
		return nil
	})
	d.kill()
	journal := strings.TrimSuffix(e.GetStdoutLogPath(), ".stdout.log") + ".journal"
	d.eventually("the supervisor records the end", func() error {
		if !strings.Contains(d.read(journal), `"timeout_ms":2000`) {
			return errors.New("it still runs")
		}
		return nil
	})
	d.start()
	st := d.ended(e.GetExecId())
	if st.GetState() != ruined || st.GetErrorCode() != "EXEC_TIMEOUT" || st.GetUser() != "0" ||
		st.GetEndedAt().AsTime().Sub(st.GetStartedAt().AsTime()) < 2*time.Second {
		t.Errorf("%v", st)
	}
	if got := d.sh(id, "ps -o args | grep -c '^sleep 1000' || true"); got != "0\n" {
		t.Errorf("%s processes of the command are left", got)
	}
}

func TestKilledDuringExec(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	for i := range rounds {
		mark := fmt.Sprintf("/workspace/ran%d", i)
		e := d.exec(id, "sh", "-c", "echo x >>"+mark+"; for i in 1 2 3 4; do echo $i; sleep 0.1; done; exit 3")
		d.killSometime(600 * time.Millisecond)
		st := d.ended(e.GetExecId())
		if st.GetState() != ruined || st.GetExitCode() != 3 || st.GetErrorCode() != "EXEC_RUN_FAILED" {
			t.Errorf("round %d: %s, code %d, %s", i, st.GetState(), st.GetExitCode(), st.GetError())
		}
		if out := d.read(e.GetStdoutLogPath()); out != "1\n2\n3\n4\n" {
			t.Errorf("round %d: output %q", i, out)
		}
		if ran := d.sh(id, "cat "+mark); ran != "x\n" {
			t.Errorf("round %d: ran %d times", i, strings.Count(ran, "x"))
		}
	}
	if got := strings.Count(d.types(id), "EXEC_FAILED"); got != rounds {
		t.Errorf("%d ends for %d execs", got, rounds)
	}
	d.remove(id)
}

func TestKilledDuringStop(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	for i := range rounds {
		e := d.exec(id, "sleep", "1000")
		d.stopBox(id)
		d.killSometime(400 * time.Millisecond)
		d.await(id, stopped)
		if st := d.ended(e.GetExecId()); st.GetState() != ended {
			t.Errorf("round %d: the exec is %s (%s)", i, st.GetState(), st.GetError())
		}
		must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
		if i%2 == 0 {
			d.killSometime(200 * time.Millisecond)
		}
		d.await(id, ready)
	}
	if types := d.types(id); strings.Contains(types, "FAILED") || strings.Count(types, "STOPPED") != rounds {
		t.Errorf("got %s", types)
	}
	d.remove(id)
}

func TestKilledDuringDelete(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	for i := range rounds {
		id := d.create(nil)
		if i%2 == 0 { // the other half is deleted in the middle of its create
			d.await(id, ready)
			d.exec(id, "sleep", "1000")
		}
		must(d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id}))(t)
		d.killSometime(400 * time.Millisecond)
		d.await(id, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
		d.eventually("nothing is left", func() error { // the engine may complete a create of the killed daemon only now
			if held := d.held(id); held != "" {
				return fmt.Errorf("round %d: %s is left", i, held)
			}
			return nil
		})
		if types := d.types(id); strings.Contains(types, "SANDBOX_FAILED") || !strings.HasSuffix(types, "DELETE_REQUESTED DELETED") &&
			!strings.HasSuffix(types, "EXEC_CANCELLED DELETED") {
			t.Errorf("round %d: %s", i, types)
		}
	}
	if left, _ := os.ReadDir(d.home + "/data/agents-sandbox/s"); len(left) > 0 {
		t.Errorf("%d run directories are left", len(left))
	}
}
