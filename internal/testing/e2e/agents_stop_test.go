//go:build docker

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestAStopOfASandboxSavesItsAgentsWork: one turn ends for the nudge, the other is cut off and its work is saved while the
// container lives.
func TestAStopOfASandboxSavesItsAgentsWork(t *testing.T) {
	c := patient(t)
	save := func(spec *agboxv1.AgentSpec) {
		spec.SaveCommand = []string{"sh", "-c", "echo $AGBOX_AGENT_ID >>/workspace/saved"}
	}
	c.hire("heeds", "native", "native", save, func(spec *agboxv1.AgentSpec) { spec.Nudge = "run echo nudged >>/workspace/saved" })
	c.hire("ignores", "native", "native", save)
	for _, id := range []string{"heeds", "ignores"} {
		c.tell(id, "work", "sleep 1000")
		c.awaitAgent(id, agentBusy)
	}
	must(c.StopSandbox(c.ctx(), &agboxv1.StopSandboxRequest{SandboxId: c.box}))(c)
	for id, want := range map[string]string{"heeds": "", "ignores": "saved"} {
		if a := c.awaitAgent(id, agentStopped); a.GetSaved() != want || !a.GetParked() {
			t.Errorf("%s: %v", id, a)
		}
	}
	c.await(c.box, stopped)
	c.resume(c.box)
	c.await(c.box, ready)
	if got := strings.Fields(c.sh(c.box, "cat /workspace/saved")); strings.Join(got, " ") != "nudged ignores" {
		t.Errorf("saved: %q", got)
	}
	c.awaitAgent("ignores", agentBusy) // once more
}

// TestTheNextProcessGetsTheSummary: the command reads the older turns on its standard input.
func TestTheNextProcessGetsTheSummary(t *testing.T) {
	c := patient(t)
	id := c.hire("worker", "native", "native", func(spec *agboxv1.AgentSpec) {
		spec.Context = &agboxv1.AgentContextPolicy{MaxTurns: 1, SummaryCommand: []string{"sh", "-c", "cat >/workspace/older; echo remember a summary"}}
	})
	c.awaitAgent(id, agentIdle)
	c.ask(id, "fact", "remember a plum")
	c.ask(id, "pid-a", "pid")
	c.kill9(id)
	c.awaitLife(id, 2)
	c.ask(id, "pid-b", "pid")
	if got := c.sh(c.box, "cat /workspace/older"); strings.Count(got, "\n") < 3 || !strings.Contains(got, `"content":"remember a plum","prompt_id":"fact"`) {
		t.Errorf("it read %s", got)
	}
}

// TestADeleteOfASandboxSavesItsAgentsWork: what a save command brings out of the sandbox is there when the sandbox is gone, for
// a turn that heeds the interrupt and for one that does not.
func TestADeleteOfASandboxSavesItsAgentsWork(t *testing.T) {
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o777); err != nil { // for the sandbox's user
		t.Fatal(err)
	}
	c := patient(t, &agboxv1.MountSpec{Source: outside, Target: "/outside", Writable: true})
	save := func(spec *agboxv1.AgentSpec) {
		spec.SaveCommand = []string{"sh", "-c", "echo saved >/outside/$AGBOX_AGENT_ID"}
	}
	c.hire("heeds", "claude-stream-json", "claude", save)
	c.hire("ignores", "native", "native", save)
	for id, text := range map[string]string{"heeds": "sleep 1000", "ignores": "ignore\nsleep 1000"} {
		c.tell(id, "work", text)
		c.awaitAgent(id, agentBusy)
	}
	must(c.DeleteSandbox(c.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: c.box}))(c)
	c.await(c.box, deleted)
	for _, id := range []string{"heeds", "ignores"} {
		if data, err := os.ReadFile(filepath.Join(outside, id)); string(data) != "saved\n" {
			t.Errorf("%s left %q, %v", id, data, err)
		}
		if _, err := c.agents().GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id}); status.Code(err) != codes.NotFound {
			t.Errorf("%s is still there: %v", id, err)
		}
	}
}
