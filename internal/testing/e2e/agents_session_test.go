//go:build docker

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// sessionFormats are those whose programs resume a session of their own.
var sessionFormats = formats[1:]

// withSessions saves what the test agent keeps.
func withSessions(spec *agboxv1.AgentSpec) { spec.SessionPaths = []string{"/workspace/.sessions"} }

// hireForSessions creates agents and prompts each of them twice, one prompt names a plum.
func (c *crew) hireForSessions() {
	c.Helper()
	for _, f := range sessionFormats {
		c.hire(f.id, f.format, f.word, withSessions)
		c.ask(f.id, "told", "remember a plum")
		c.ask(f.id, "told-more", "remember a pear")
	}
}

// saved waits until the session of an agent is saved with all its turns.
func (c *crew) saved(id string) *agboxv1.AgentSession {
	c.Helper()
	var last uint64
	for _, e := range c.agentEvents(id) {
		if e.GetResult() != nil {
			last = e.GetSequence()
		}
	}
	return c.agentIs(id, fmt.Sprint("saved with event ", last), func(a *agboxv1.AgentHandle) bool {
		return a.GetSession().GetSavedAt().AsTime().After(c.occurred(id, last)) && a.GetSession().GetProblem() == ""
	}).GetSession()
}

func (c *crew) occurred(id string, sequence uint64) (at time.Time) {
	c.Helper()
	for _, e := range c.agentEvents(id) {
		if e.GetSequence() == sequence {
			at = e.GetOccurredAt().AsTime()
		}
	}
	return at
}

// ownSession are the prompts in the session of the program itself, as it has written them.
func (c *crew) ownSession(id string) (session string, prompts []string) {
	c.Helper()
	owner := strings.TrimSpace(c.sh(c.box, "cd /workspace/.sessions && grep -l "+id+"-mark * || true"))
	if owner == "" || strings.Contains(owner, "\n") {
		c.Fatalf("session of %s: %q", id, owner)
	}
	for _, line := range strings.Split(strings.TrimSpace(c.sh(c.box, "cat /workspace/.sessions/"+owner)), "\n") {
		var text string
		if err := json.Unmarshal([]byte(line), &text); err != nil {
			c.Fatal(err)
		}
		if text != "" {
			prompts = append(prompts, text)
		}
	}
	return owner, prompts
}

// wantOwnSession checks that an agent has resumed its own session with its own file: same ID, and no prompt with a retelling.
func (c *crew) wantOwnSession(id, session string, prompts int, promptID string) {
	c.Helper()
	if got := c.ask(id, promptID, "what did I say?"); got != "you said: a plum; a pear" {
		c.Errorf("%s says %q", id, got)
	}
	if got := c.moves(id); strings.Contains(got, "SPAWN/CONTEXT") || !strings.Contains(got, "SPAWN/NATIVE") {
		c.Errorf("%s got its past by %s", id, got)
	}
	owner, list := c.ownSession(id)
	if owner != session || len(list) != prompts {
		c.Errorf("%s has session %s with %q; want %s with %d prompts", id, owner, list, session, prompts)
	}
	for _, text := range list {
		if strings.Contains(text, "user: remember") {
			c.Errorf("%s was told again: %q", id, text)
		}
	}
}

// mark puts a word into the session by which a test finds its file.
func (c *crew) mark(id string) (session string) {
	c.Helper()
	c.ask(id, "mark", "echo "+id+"-mark")
	session, list := c.ownSession(id)
	if len(list) != 3 {
		c.Fatalf("%s has %q", id, list)
	}
	return session
}

// homeManifest is the manifest of the sandbox of movers.
func homeManifest(t *testing.T) string {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "home.yaml")
	text := fmt.Sprintf("apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: home}\nspec: {image: %q, mounts: [{source: %q, target: /bin/testagent}]}\n",
		baseImage, filepath.Join(binaries, "testagent"))
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifest
}

// TestProgramsResumeTheirOwnSessionInAnotherContainer: after docker rm -f and --replace, after a plain --replace, and after a move.
func TestProgramsResumeTheirOwnSessionInAnotherContainer(t *testing.T) {
	c := movers(t)
	manifest := homeManifest(t)
	c.hireForSessions()
	sessions := map[string]string{}
	for _, f := range sessionFormats {
		sessions[f.id] = c.mark(f.id)
		if s := c.saved(f.id); s.GetFiles() != 1 || s.GetBytes() == 0 {
			t.Errorf("%s: %v", f.id, s)
		}
		if out := c.agbox("agent", "describe", f.id); !strings.Contains(out, "Session:") || !strings.Contains(out, "1 file") {
			t.Errorf("describe says\n%s", out)
		}
	}
	lab := c.room("lab")
	c.await(lab, ready)
	for i, step := range []func(){
		func() {
			c.docker("rm", "-fv", naming.Primary(c.box))
			c.await(c.box, failed)
			c.agbox("apply", "--replace", "-f", manifest, "--wait")
		},
		func() {
			text := strings.Replace(c.read(manifest), "mounts:", "envs: {NEW: spec}, mounts:", 1)
			if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c.agbox("apply", "--replace", "-f", manifest, "--wait")
		},
		func() { c.sendAllOf(lab) },
	} {
		step()
		for _, f := range sessionFormats {
			c.agentIs(f.id, "idle in another sandbox", func(a *agboxv1.AgentHandle) bool {
				return a.GetState() == agentIdle && a.GetSandboxId() != c.box && a.GetMovesTo() == ""
			})
		}
		c.box = c.agent(sessionFormats[0].id).GetSandboxId()
		for _, f := range sessionFormats {
			c.wantOwnSession(f.id, sessions[f.id], 4+i, fmt.Sprint("after-", i))
			c.saved(f.id)
		}
	}
	if entries, err := os.ReadDir(c.data("sessions")); err != nil || len(entries) != len(sessionFormats) {
		t.Errorf("kept %v, %v", entries, err)
	}
	for _, f := range sessionFormats {
		must(c.agents().DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: f.id}))(t)
	}
	c.eventually("the copies are gone", func() error {
		if entries, err := os.ReadDir(c.data("sessions")); err != nil || len(entries) > 0 {
			return fmt.Errorf("kept %v, %w", entries, err)
		}
		return nil
	})
	c.remove(lab)
}

func (c *crew) sendAllOf(box string) {
	c.Helper()
	for _, f := range sessionFormats {
		c.send(f.id, box)
	}
}

// TestASessionSurvivesALossInTheMiddleOfATurn: it is as after the last turn, and the prompt that was cut off is given again.
func TestASessionSurvivesALossInTheMiddleOfATurn(t *testing.T) {
	c := movers(t)
	manifest := homeManifest(t)
	c.hireForSessions()
	sessions := map[string]string{}
	for _, f := range sessionFormats {
		sessions[f.id] = c.mark(f.id)
		c.saved(f.id)
		c.tell(f.id, "work", "sleep 1000")
		c.awaitAgent(f.id, agentBusy)
	}
	c.docker("rm", "-fv", naming.Primary(c.box))
	c.await(c.box, failed)
	c.agbox("apply", "--replace", "-f", manifest)
	for _, f := range sessionFormats {
		c.agentIs(f.id, "busy with what was cut off", func(a *agboxv1.AgentHandle) bool {
			return a.GetPromptId() == "work" && a.GetSandboxId() != c.box
		})
		must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: f.id}))(t)
		c.awaitAgent(f.id, agentIdle)
	}
	c.box = c.agent(sessionFormats[0].id).GetSandboxId()
	for _, f := range sessionFormats {
		c.wantOwnSession(f.id, sessions[f.id], 5, "after")
	}
}

// TestKilledWhileSessionsAreSavedAndPutBack: whatever the moment, the program has its own session in the end.
func TestKilledWhileSessionsAreSavedAndPutBack(t *testing.T) {
	c := movers(t)
	c.hireForSessions()
	sessions := map[string]string{}
	for _, f := range sessionFormats {
		sessions[f.id] = c.mark(f.id)
	}
	lab := c.room("lab")
	c.await(lab, ready)
	const within = 300 * time.Millisecond
	home := c.box
	prompts := 3
	for i := range 6 {
		p := fmt.Sprint("prompt-", i)
		for _, f := range sessionFormats {
			c.tell(f.id, p, "echo "+p)
		}
		c.killSometime(within)
		for _, f := range sessionFormats {
			c.result(f.id, p)
		}
		c.killSometime(within)
		for _, f := range sessionFormats {
			c.saved(f.id)
		}
		to := []string{lab, home}[i%2]
		c.sendAllOf(to)
		c.killSometime(within)
		c.killSometime(within)
		for _, f := range sessionFormats {
			c.arrives(f.id, to)
		}
		c.box = to
		c.sh(map[string]string{lab: home, home: lab}[to], "rm -rf /workspace/.sessions") // the copy alone has it
		prompts += 2
		for _, f := range sessionFormats {
			c.wantOwnSession(f.id, sessions[f.id], prompts, fmt.Sprint("round-", i))
			c.saved(f.id)
		}
	}
	c.remove(lab)
	c.remove(home)
}

// TestAHostileSessionHarmsNothing: too large, too many, no files at all: it is not saved, that is said, and the agent works on. It gets its
// conversation in the next sandbox.
func TestAHostileSessionHarmsNothing(t *testing.T) {
	t.Parallel()
	c := &crew{daemon: newDaemon(t, "", "[agents]\nsession_limit = \"64KiB\"\n")}
	c.box = c.room("home")
	c.await(c.box, ready)
	f := sessionFormats[0]
	c.hire(f.id, f.format, f.word, withSessions)
	c.ask(f.id, "told", "remember a plum")
	c.saved(f.id)
	for i, attack := range []string{
		"truncate -s 1000000000000 /workspace/.sessions/huge",
		"rm -f /workspace/.sessions/huge; i=0; mkdir /workspace/.sessions/d; while [ $i -lt 10100 ]; do : >/workspace/.sessions/d/$i; i=$((i+1)); done",
	} {
		c.ask(f.id, fmt.Sprint("attack-", i), "run "+attack)
		c.agentIs(f.id, "told that it is not saved", func(a *agboxv1.AgentHandle) bool { return a.GetSession().GetProblem() != "" })
		c.ask(f.id, fmt.Sprint("works-", i), "echo works")
	}
	if out := c.agbox("agent", "describe", f.id); !strings.Contains(out, "the last attempt failed: its session has more than 10000 files") {
		t.Errorf("describe says\n%s", out)
	}
	c.ask(f.id, "tree", "run cd /workspace/.sessions && rm -rf d && ln -s /etc/shadow shadow && ln -s / root && mkfifo fifo && ln -s . loop && "+
		"mkdir -p a/b && printf x >\"$(printf 'a/n\\nl')\" && printf y >\"$(printf 'a/\\377')\"")
	if s := c.saved(f.id); s.GetFiles() != 2 {
		t.Errorf("%v", s)
	}
	told := 0
	for _, e := range c.agentEvents(f.id) {
		if e.GetEventType() == agboxv1.AgentEventType_AGENT_SESSION_NOT_SAVED {
			told++
		}
	}
	if told != 2 {
		t.Errorf("told %d times", told)
	}
	err := filepath.WalkDir(c.data("sessions"), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !e.Type().IsRegular() {
			t.Errorf("%s is a %v", path, e.Type())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	c.ask(f.id, "again", "run truncate -s 1000000000000 /workspace/.sessions/huge")
	c.agentIs(f.id, "told again", func(a *agboxv1.AgentHandle) bool { return a.GetSession().GetProblem() != "" })
	lab := c.room("lab")
	c.await(lab, ready)
	c.send(f.id, lab)
	c.arrives(f.id, lab)
	c.wantPlum(f.id, "in-the-lab")
	c.remove(lab)
}
