//go:build docker

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

var (
	realAgents  = flag.String("agents", "", "the directory in which hack/agents.sh has installed agent programs; empty: leave those tests out")
	transcripts = flag.String("transcripts", "", "a directory for the output of each program's first process; empty: it is not kept")
	devImage    = flag.String("dev-image", "agbox-dev:dev", "the image in which they run")
)

// modelURL is where internal/testing/scriptmodel listens, inside each sandbox.
const modelURL = "http://127.0.0.1:8080"

// realPrograms are agent programs as their users start them. Their model is scriptmodel.
var realPrograms = []struct {
	name, format string
	command      []string
	envs         map[string]string
	// forgets: it may find no session of its own after its end, and gets the context then.
	forgets bool
}{
	{"claude", "claude-stream-json", []string{"claude", "--permission-mode", "bypassPermissions"}, map[string]string{
		"ANTHROPIC_BASE_URL": modelURL, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
	}, false},
	{"claude-acp", "acp", []string{"claude-code-acp"}, map[string]string{
		"ANTHROPIC_BASE_URL": modelURL, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
	}, false},
	{"gemini", "acp", []string{"gemini", "--experimental-acp", "--yolo", "--model", "gemini-2.5-flash"}, map[string]string{
		"GOOGLE_GEMINI_BASE_URL": modelURL, "GEMINI_API_KEY": "none", "GEMINI_TELEMETRY_ENABLED": "false",
	}, true},
	{"opencode", "acp", []string{"opencode", "acp"}, map[string]string{
		"OPENCODE_CONFIG_CONTENT": `{"autoupdate":false,"share":"disabled","model":"anthropic/claude-sonnet-4-5","small_model":"anthropic/claude-sonnet-4-5",
			"provider":{"anthropic":{"options":{"baseURL":"` + modelURL + `/v1","apiKey":"none"}}}}`,
	}, false},
}

// realManifest is the sandbox of an agent, whose main process is the model.
const realManifest = `apiVersion: agbox/v1
kind: Sandbox
metadata: {name: home}
spec:
  image: %q
  user: agbox
  command: [/opt/scriptmodel]
  mounts: [{source: %q, target: /opt/agents}, {source: %q, target: /opt/scriptmodel}]
`

// TestRealAgents takes each program through turns, a tool, an interrupt, kills of itself and of the daemon, a stop, and losses of its
// container. Its engine has a network namespace of its own, so that no program reaches anything but its model.
func TestRealAgents(t *testing.T) {
	if *realAgents == "" {
		t.Skip("needs agent programs from npm: make test-agents installs them and gives their directory")
	}
	e := newEngine(t)
	loadImage(t, e, *devImage)
	for _, p := range realPrograms {
		t.Run(p.name, func(t *testing.T) {
			d := newDaemon(t, e.Host(), "")
			manifest := filepath.Join(t.TempDir(), "home.yaml")
			if err := os.WriteFile(manifest, fmt.Appendf(nil, realManifest, *devImage, *realAgents, filepath.Join(binaries, "scriptmodel")), 0o600); err != nil {
				t.Fatal(err)
			}
			d.agbox("apply", "-f", manifest, "--wait")
			c := &crew{daemon: d, box: must(d.ListSandboxes(d.ctx(), &agboxv1.ListSandboxesRequest{}))(t).GetSandboxes()[0].GetSandboxId()}
			d.await(c.box, ready)
			command := append([]string{"/opt/agents/node_modules/.bin/" + p.command[0]}, p.command[1:]...)
			must(c.agents().CreateAgent(c.ctx(), &agboxv1.CreateAgentRequest{AgentId: p.name, Spec: &agboxv1.AgentSpec{
				SandboxId: c.box, Command: command, Format: p.format, Envs: p.envs,
			}}))(c)
			c.awaitLife(p.name, 1)
			c.realTurns(p.name)
			c.realDeaths(p.name, p.forgets)
			c.realLosses(p.name, manifest, p.forgets)
			if *transcripts != "" {
				c.keepTranscript(p.name)
			}
			c.remove(c.box)
		})
	}
}

// realTurns are an answer, a tool call with its result, and an interrupted turn.
func (c *crew) realTurns(id string) {
	c.Helper()
	if got := c.ask(id, "say-1", "<<say blue>>"); got != "blue" {
		c.Errorf("it says %q", got)
	}
	if got := c.ask(id, "run-1", "<<run echo made >/workspace/proof; expr 6 \\* 7>>"); !strings.HasPrefix(got, "[tool ") || !strings.Contains(got, "ran: ") || !strings.Contains(got, "42") {
		c.Errorf("it says %q", got)
	}
	if got := c.sh(c.box, "cat /workspace/proof"); got != "made\n" {
		c.Errorf("the tool made %q", got)
	}
	c.tell(id, "slow-1", "<<slow>>")
	c.awaitWords(id)
	must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: id}))(c)
	if r := c.result(id, "slow-1"); r.GetOutcome() != "interrupted" {
		c.Errorf("an interrupted turn ended with %s %s", r.GetOutcome(), r.GetError())
	}
	c.wantRecall(id, "after an interrupt", 1)
}

// awaitWords waits until the agent works on a prompt and speaks.
func (c *crew) awaitWords(id string) {
	c.Helper()
	c.awaitAgent(id, agentBusy)
	if c.agent(id).GetSpec().GetFormat() != "acp" {
		return // whole messages only
	}
	c.eventually(id+" speaks", func() error {
		events, err := c.eventsIfServed(id)
		for _, e := range events {
			if strings.Contains(e.String(), "word word") {
				return nil
			}
		}
		return errors.Join(errors.New("no words yet"), err)
	})
}

// realDeaths kills the daemon and the program, and stops the sandbox: the program knows its conversation each time.
func (c *crew) realDeaths(id string, forgets bool) {
	c.Helper()
	c.tell(id, "slow-2", "<<slow>>")
	c.awaitWords(id)
	c.restart()
	c.awaitAgent(id, agentBusy)
	must(c.agents().InterruptAgent(c.ctx(), &agboxv1.InterruptAgentRequest{AgentId: id}))(c)
	c.result(id, "slow-2")
	c.wantRecall(id, "after the daemon's death", 1)

	c.sh(c.box, fmt.Sprintf(`for p in /proc/[0-9]*; do
		if grep -qz AGBOX_EXEC_ID=%s.1 $p/environ 2>/dev/null; then kill -9 ${p#/proc/}; fi
	done`, id))
	back := func(after uint64) {
		c.agentIs(id, "idle in a later life", func(a *agboxv1.AgentHandle) bool {
			return a.GetState() == agentIdle && (a.GetIncarnation() == after+1 || forgets && a.GetIncarnation() > after)
		})
	}
	back(1)
	c.wantRecall(id, "after its own death", 2)
	if moves := c.moves(id); !forgets && !strings.Contains(moves, "PROCESS_CRASHED SPAWN/NATIVE CONNECTED PROMPT_RECEIVED RESULT_RECEIVED") {
		c.Errorf("it did not resume its own session: %s", moves)
	}
	life := c.agent(id).GetIncarnation()
	c.halt(c.box)
	c.resume(c.box)
	back(life)
	c.wantRecall(id, "after a stop", 3)
}

// realLosses removes the container, and then replaces the sandbox: the program resumes its own session in the next container.
func (c *crew) realLosses(id, manifest string, forgets bool) {
	c.Helper()
	for i, lose := range []func(){
		func() {
			c.docker("rm", "-fv", naming.Primary(c.box))
			c.await(c.box, failed)
		},
		func() {
			text := strings.Replace(c.read(manifest), "mounts:", "envs: {NEW: spec}\n  mounts:", 1)
			if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
				c.Fatal(err)
			}
		},
	} {
		session := c.saved(id)
		c.Logf("%s: saved are %d files, %d bytes", id, session.GetFiles(), session.GetBytes())
		before := len(strings.Fields(c.moves(id)))
		lose()
		c.agbox("apply", "--replace", "-f", manifest, "--wait")
		c.box = c.agentIs(id, "idle in another sandbox", func(a *agboxv1.AgentHandle) bool {
			return a.GetState() == agentIdle && a.GetSandboxId() != c.box && a.GetMovesTo() == ""
		}).GetSandboxId()
		c.wantRecall(id, "after a loss", uint64(i))
		if moves := strings.Fields(c.moves(id))[before:]; !forgets && (!slices.Contains(moves, "SPAWN/NATIVE") || slices.Contains(moves, "SPAWN/CONTEXT")) {
			c.Errorf("loss %d: it did not resume its own session: %s", i, moves)
		}
	}
}

// keepTranscript copies the output of an agent's first process, which may become a golden file of internal/agent/dialect.
func (c *crew) keepTranscript(id string) {
	c.Helper()
	e := must(c.GetExec(c.ctx(), &agboxv1.GetExecRequest{ExecId: id + ".1"}))(c).GetExec()
	if err := os.WriteFile(filepath.Join(*transcripts, id+".ndjson"), []byte(c.read(e.GetStdoutLogPath())), 0o600); err != nil {
		c.Error(err)
	}
}

func (c *crew) wantRecall(id, when string, life uint64) {
	c.Helper()
	if got := c.ask(id, fmt.Sprintf("recall-%s-%d", strings.NewReplacer(" ", "-", "'", "").Replace(when), life), "<<recall>>"); got != "blue" {
		c.Errorf("%s it recalls %q", when, got)
	}
}
