//go:build docker

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The operations of docs/crash-contract.md on a disk that is full.

// exhaust fills the disk with a file of its own, which room removes. Nothing in a sandbox grows meanwhile.
func (d *disk) exhaust() {
	d.Helper()
	_ = exec.Command("dd", "if=/dev/zero", "of="+d.filler(), "bs=4k").Run() // fails when the disk is full
	if err := full(d.data); err != nil {
		d.Fatal(err)
	}
}

func (d *disk) room() {
	d.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.Fatal(err)
	}
}

func (d *disk) filler() string { return d.data + "/filler" }

func TestAgentsOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := newTmpfs(t, "48m", noQuota)
	c, other := newCrew(d.daemon), newCrew(d.daemon)
	save := func(s *agboxv1.AgentSpec) {
		s.SaveCommand = []string{"sh", "-c", "echo $AGBOX_AGENT_ID >>/workspace/saved"}
	}
	for _, id := range []string{"halts", "goes", "interrupted", "moves", "drains"} {
		c.hire(id, "native", "native", save)
	}
	for _, id := range []string{"halts", "goes", "interrupted", "moves", "drains"} {
		c.awaitAgent(id, agentIdle)
	}
	c.ask("moves", "fact", "remember a plum")
	for _, id := range []string{"interrupted", "drains"} {
		c.tell(id, "long", "sleep 1000")
		c.awaitAgent(id, agentBusy)
	}
	d.exhaust()
	d.refusesNew(c.box)

	must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: "interrupted"}))(t)
	must(c.agents().StopAgent(c.ctx(), &agboxv1.StopAgentRequest{AgentId: "halts"}))(t)
	must(c.agents().DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: "goes"}))(t)
	c.send("moves", other.box)
	c.awaitAgent("halts", agentStopped)
	c.agentIsGone("goes")
	if s := c.drain(&agboxv1.DrainRequest{Wait: seconds(1), SaveEach: seconds(2)}); s.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE {
		t.Errorf("%v", s)
	}
	d.refusesNew(c.box) // it was full all the time

	d.room()
	d.recovers(c.box)
	must(c.admin().Undrain(c.ctx(), &agboxv1.UndrainRequest{}))(t)
	if r := c.result("interrupted", "long"); r.GetOutcome() != "interrupted" {
		t.Errorf("the turn that was interrupted: %v", r)
	}
	c.arrives("moves", other.box)
	if got := c.ask("moves", "asked", "what did I say?"); !strings.Contains(got, "a plum") {
		t.Errorf("after its move it says %q", got)
	}
	c.awaitAgent("drains", agentBusy) // its prompt once more
	c.awaitAgent("halts", agentStopped)
	c.remove(c.box)
	c.remove(other.box)
}

// agentIsGone waits until an agent is deleted.
func (c *crew) agentIsGone(id string) {
	c.Helper()
	c.eventually(id+" is gone", func() error {
		_, err := c.agents().GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
		if isCode(err, codes.NotFound) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}

// TestDeadlinesGarbageAndRestoreOnAFullDisk: a deadline that is set there is acted on there, a restore that has no room changes nothing, and
// the removal of garbage makes room.
func TestDeadlinesGarbageAndRestoreOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := newTmpfs(t, "64m", noQuota+noSweep)
	file := filepath.Join(t.TempDir(), "backup")
	id, expires := d.create(nil), d.create(nil)
	d.await(id, ready)
	d.await(expires, ready)
	d.agbox("backup", file)
	former := d.create(nil)
	d.await(former, ready)
	d.remove(former)
	d.leaves(former, 0, 1)
	garbage := filepath.Join(d.data, "agents-sandbox/exec-logs", former, "left")
	if err := os.WriteFile(garbage, make([]byte, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	before := d.asOf(id)
	d.exhaust()
	d.refusesNew(id)

	must(d.SetSandboxTimeout(d.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: expires, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: seconds(1)},
	}))(t)
	d.await(expires, stopped)
	d.kill()
	if out, err := d.command("restore", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "no space left on device") {
		t.Errorf("a restore without room: %v\n%s", err, out)
	}
	d.start()
	d.sameAs(id, before)
	if s := d.state(expires); s != stopped { // the backup has it READY
		t.Errorf("after a restore that failed it is %s", s)
	}
	d.refusesNew(id)
	if n := d.collects(); n != 2 {
		t.Errorf("%d leftovers were removed", n)
	}
	d.recovers(id)
	d.room()
	d.remove(expires)
	d.remove(id)
}
