//go:build docker

package e2e

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const cutOff = "its container was stopped by others before its turn had ended"

// lastReason is that of the last transition of an agent.
func (c *crew) lastReason(id string) string {
	c.Helper()
	list := must(c.agents().ListAgentTransitions(c.ctx(), &agboxv1.ListAgentTransitionsRequest{AgentId: id}))(c).GetTransitions()
	return list[len(list)-1].GetReason()
}

// TestADockerStopParksAgents: PID 1 waits within the grace until the work of busy agents is saved. They start again with the next resume,
// whatever their restart policy.
func TestADockerStopParksAgents(t *testing.T) {
	c := patient(t)
	spec := func(spec *agboxv1.AgentSpec) {
		spec.RestartPolicy, spec.SaveCommand = "never", []string{"sh", "-c", "echo $AGBOX_AGENT_ID >>/workspace/saved"}
	}
	c.hire("rests", "native", "native", spec)
	c.hire("heeds", "claude-stream-json", "claude", spec)
	c.hire("ignores", "native", "native", spec)
	for id, text := range map[string]string{"heeds": "sleep 1000", "ignores": "ignore\nsleep 1000"} {
		c.tell(id, "work", text)
		c.awaitAgent(id, agentBusy)
	}
	c.docker("stop", naming.Primary(c.box))
	c.await(c.box, stopped)
	if types := c.types(c.box); strings.Contains(types, "FAILED") && !strings.Contains(types, "EXEC_FAILED") {
		t.Errorf("%s", types)
	}
	for id, want := range map[string]string{"rests": "", "heeds": "saved", "ignores": "not saved"} { // it needs a KILL, after the grace
		if a := c.awaitAgent(id, agentStopped); a.GetSaved() != want || !a.GetParked() {
			t.Errorf("%s: %v", id, a)
		}
	}
	for id, want := range map[string]string{"heeds": "its container was being stopped", "ignores": cutOff} {
		if got := c.lastReason(id); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
	c.resume(c.box)
	if got := strings.Fields(c.sh(c.box, "cat /workspace/saved")); strings.Join(got, " ") != "heeds" {
		t.Errorf("saved: %q", got)
	}
	c.awaitAgent("rests", agentIdle)
	c.awaitAgent("heeds", agentBusy) // once more
	c.awaitAgent("ignores", agentBusy)
	c.remove(c.box)
}

// TestADockerStopWhileTheDaemonIsAwayParksAgents: also one whose grace is over at once.
func TestADockerStopWhileTheDaemonIsAwayParksAgents(t *testing.T) {
	c := patient(t)
	c.hireAll()
	c.tell("speaks-native", "work", "sleep 1000")
	c.awaitAgent("speaks-native", agentBusy)
	c.kill()
	c.docker("stop", naming.Primary(c.box))
	c.start()
	c.await(c.box, stopped)
	for _, f := range formats {
		if a := c.awaitAgent(f.id, agentStopped); !a.GetParked() || (a.GetSaved() == "not saved") != (f.id == "speaks-native") {
			t.Errorf("%s: %v", f.id, a)
		}
	}
	c.resume(c.box)
	c.awaitAgent("speaks-native", agentBusy)
	c.docker("stop", "-t", "1", naming.Primary(c.box)) // enough for PID 1 to note the TERM
	c.await(c.box, stopped)
	if a := c.awaitAgent("speaks-native", agentStopped); !a.GetParked() {
		t.Errorf("%v", a)
	}
	c.resume(c.box)
	c.awaitAgent("speaks-native", agentBusy)
	c.docker("kill", naming.Primary(c.box)) // is no stop
	c.await(c.box, failed)
	c.awaitAgent("speaks-native", agentFailed)
	c.remove(c.box)
}

// TestAgentsComeBackAfterAShutdownOfTheEngine: the engine stopped their container, so no resume is needed.
func TestAgentsComeBackAfterAShutdownOfTheEngine(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := newCrew(newDaemon(t, e.Host(), ""))
	c.remember()
	e.Stop()
	e.Start()
	for _, f := range formats {
		c.awaitLife(f.id, 2)
		c.awaitAgent(f.id, agentIdle)
		if got := c.ask(f.id, "shut-down", "what did I say?"); got != "you said: a plum" {
			t.Errorf("%s says %q", f.id, got)
		}
	}
	if types := c.types(c.box); strings.Contains(types, "STOPPED") || !strings.Contains(types, "RESTARTED") {
		t.Errorf("%s", types)
	}
}
