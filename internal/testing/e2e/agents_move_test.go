//go:build docker

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// room makes another sandbox in which the test agent can run, with a name, and returns its ID.
func (c *crew) room(name string) string {
	c.Helper()
	return c.named(name, &agboxv1.CreateSpec{
		Mounts: []*agboxv1.MountSpec{{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"}},
	})
}

// movers is a crew whose sandbox has the name "home".
func movers(t *testing.T) *crew {
	t.Helper()
	t.Parallel()
	c := &crew{daemon: newDaemon(t, "", "")}
	c.box = c.room("home")
	c.await(c.box, ready)
	return c
}

func (c *crew) send(id, box string) {
	c.Helper()
	must(c.agents().MoveAgent(c.ctx(), &agboxv1.MoveAgentRequest{AgentId: id, SandboxId: box}))(c)
}

// arrives waits until an agent is in a sandbox and ready there.
func (c *crew) arrives(id, box string) {
	c.Helper()
	c.agentIs(id, "idle in "+box, func(a *agboxv1.AgentHandle) bool {
		return a.GetState() == agentIdle && a.GetSandboxId() == box && a.GetMovesTo() == "" && a.GetQueuedPrompts() == 0
	})
}

func (c *crew) deleteKeeping(box string) {
	c.Helper()
	must(c.DeleteSandbox(c.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: box, KeepAgents: true}))(c)
}

// wantOnce checks that each prompt was given once and answered once.
func (c *crew) wantOnce(id string, prompts ...string) {
	c.Helper()
	given, answered := map[string]int{}, map[string]int{}
	for _, e := range c.agentEvents(id) {
		if m := e.GetMessage(); e.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED && m.GetPromptId() != "" {
			given[m.GetPromptId()]++
		}
		if r := e.GetResult(); r.GetPromptId() != "" && r.GetOutcome() == "end_turn" {
			answered[r.GetPromptId()]++
		}
	}
	for _, p := range prompts {
		if given[p] != 1 || answered[p] != 1 {
			c.Errorf("%s: %s was given %d times and answered %d times", id, p, given[p], answered[p])
		}
	}
}

// wantPlum checks that an agent knows what it was told at the beginning, by what it was told of its past alone.
func (c *crew) wantPlum(id, promptID string) {
	c.Helper()
	if got := c.ask(id, promptID, "what did I say?"); got != "you said: a plum" {
		c.Errorf("%s says %q", id, got)
	}
	if got := c.moves(id); strings.Contains(got, "NATIVE") || !strings.Contains(got, "SPAWN/CONTEXT") {
		c.Errorf("%s got its past by %s", id, got)
	}
}

func TestAgentsRememberWhenTheirContainerIsRemovedAndTheirSandboxReplaced(t *testing.T) {
	c := movers(t)
	c.remember()
	manifest := filepath.Join(t.TempDir(), "home.yaml")
	text := fmt.Sprintf("apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: home}\nspec: {image: %q, mounts: [{source: %q, target: /bin/testagent}]}\n",
		baseImage, filepath.Join(binaries, "testagent"))
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range formats {
		c.tell(f.id, "work", "sleep 1000")
		c.awaitAgent(f.id, agentBusy)
		c.tell(f.id, "next", "echo next")
	}
	c.docker("rm", "-fv", naming.Primary(c.box))
	c.await(c.box, failed)
	for _, f := range formats {
		c.awaitAgent(f.id, agentFailed)
	}
	out := c.agbox("apply", "--replace", "-f", manifest, "--wait")
	if !strings.Contains(out, "move to the new sandbox with their conversations") || !strings.Contains(out, "sandbox/home replaced") {
		t.Errorf("apply --replace says\n%s", out)
	}
	old := c.box
	for _, f := range formats {
		a := c.agent(f.id)
		if c.box = a.GetSandboxId(); c.box == old || a.GetMovesTo() != "" {
			t.Fatalf("%v", a)
		}
		c.agentIs(f.id, "busy with what was cut off", func(a *agboxv1.AgentHandle) bool { return a.GetPromptId() == "work" })
		must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: f.id}))(t) // "sleep 1000", given once more
		c.result(f.id, "next")
		c.wantPlum(f.id, "after")
		c.wantOnce(f.id, "told", "next", "after")
	}
	c.await(old, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	c.remove(c.box)
}

func TestAgentsMoveBetweenSandboxesIdleAndBusy(t *testing.T) {
	c := movers(t)
	c.remember()
	lab := c.room("lab")
	c.await(lab, ready)
	c.sh(c.box, "echo home >/tmp/mark")
	c.sh(lab, "echo lab >/tmp/mark")
	for _, f := range formats {
		c.send(f.id, lab)
		c.tell(f.id, "idle-1", "run cat /tmp/mark")
		c.tell(f.id, "idle-2", "echo second")
	}
	for _, f := range formats {
		c.arrives(f.id, lab)
		c.wantPlum(f.id, "in-the-lab")
		c.tell(f.id, "busy", untilReleased+"cat /tmp/mark")
		c.awaitAgent(f.id, agentBusy)
		c.send(f.id, c.box)
		c.tell(f.id, "busy-1", "run cat /tmp/mark")
		c.tell(f.id, "busy-2", "echo second")
		if a := c.agent(f.id); a.GetMovesTo() != c.box {
			t.Errorf("on its way it says %v", a)
		}
	}
	c.release(lab)
	for _, f := range formats {
		c.result(f.id, "busy-2")
		c.arrives(f.id, c.box)
		c.wantOnce(f.id, "told", "idle-1", "idle-2", "in-the-lab", "busy", "busy-1", "busy-2")
		c.wantPlum(f.id, "at-home")
		c.wantSaid(f.id, map[string]string{"busy": "lab", "busy-1": "home"})
		if got := c.moves(f.id); strings.Contains(got, "CRASHED") || strings.Count(got, "SPAWN") != 3 {
			t.Errorf("%s: %s", f.id, got)
		}
	}
	c.remove(lab)
	c.remove(c.box)
}

// TestADeleteThatKeepsAgentsSavesTheirWork, as a stop does: one turn ends for the nudge, the other is cut off, saved, and given
// again in the next sandbox of the name.
func TestADeleteThatKeepsAgentsSavesTheirWork(t *testing.T) {
	t.Parallel()
	c := &crew{daemon: newDaemon(t, "", "")}
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil { // the sandbox has a user of its own
		t.Fatal(err)
	}
	spec := &agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{
		{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"}, {Source: shared, Target: "/shared", Writable: true},
	}}
	c.box = c.named("home", spec)
	c.await(c.box, ready)
	save := func(spec *agboxv1.AgentSpec) {
		spec.SaveCommand = []string{"sh", "-c", "echo $AGBOX_AGENT_ID >>/shared/saved"}
	}
	c.hire("heeds", "native", "native", save, func(spec *agboxv1.AgentSpec) { spec.Nudge = "run echo nudged >>/shared/saved" })
	c.hire("ignores", "native", "native", save)
	for _, id := range []string{"heeds", "ignores"} {
		c.tell(id, "work", "sleep 1000")
		c.awaitAgent(id, agentBusy)
	}
	c.deleteKeeping(c.box)
	c.await(c.box, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	if got := strings.Fields(c.read(filepath.Join(shared, "saved"))); strings.Join(got, " ") != "nudged ignores" {
		t.Errorf("saved: %q", got)
	}
	if a := c.agent("ignores"); a.GetSaved() != "saved" || !a.GetParked() || a.GetMovesTo() != "home" {
		t.Errorf("%v", a)
	}
	c.box = c.named("home", spec)
	c.agentIs("ignores", "busy with it again", func(a *agboxv1.AgentHandle) bool {
		return a.GetPromptId() == "work" && a.GetSandboxId() == c.box
	})
	c.arrives("heeds", c.box)
	c.wantOnce("heeds", "work")
}

// wantSaid checks the answers to prompts, by their ID.
func (c *crew) wantSaid(id string, want map[string]string) {
	c.Helper()
	prompt := ""
	for _, turn := range c.turns(id) {
		if turn.GetRole() == "user" {
			prompt = turn.GetPromptId()
		} else if text := want[prompt]; text != "" && strings.TrimSpace(turn.GetContent()) != text {
			c.Errorf("%s answers %s with %q, want %q", id, prompt, turn.GetContent(), text)
		}
	}
}

// TestKilledWhileAgentsLoseTheirSandboxAndMove: whatever the moment, each agent ends up where it is to be, once, with all prompts.
func TestKilledWhileAgentsLoseTheirSandboxAndMove(t *testing.T) {
	c := movers(t)
	c.remember()
	lab := c.room("lab")
	c.await(lab, ready)
	const within = 300 * time.Millisecond
	prompts := []string{"told"}
	for i := range 4 {
		for _, step := range []func(){
			func() { c.deleteKeeping(c.box) },
			func() { c.box = c.room("home") },
			func() { c.sendAll(lab) },
			func() { c.sendAll(c.box) },
		} {
			p := fmt.Sprintf("prompt-%d", len(prompts))
			for _, f := range formats {
				c.tell(f.id, p, "echo "+p)
			}
			prompts = append(prompts, p)
			step()
			c.killSometime(within)
		}
		for _, f := range formats {
			c.arrives(f.id, c.box)
			c.wantPlum(f.id, fmt.Sprint("round-", i))
		}
	}
	for _, f := range formats {
		c.wantOnce(f.id, prompts...)
	}
	c.remove(lab)
	c.remove(c.box)
}

func (c *crew) sendAll(box string) {
	c.Helper()
	for _, f := range formats {
		c.send(f.id, box)
	}
}
