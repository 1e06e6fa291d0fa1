package controller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

var agentHappenings = []string{
	"agent", "agent", "prompt", "prompt", "prompt", "prompt", "prompt", "prompt",
	"agent stop", "agent start", "agent delete", "interrupt", "drain", "undrain", "detach", "hurry",
	"wait", "wait", "wait", "wait", "kill daemon", "kill daemon soon", "kill daemon soon", "reboot",
	"engine down", "engine up", "engine restart", "engine restart live", "lose reply", "fail", "heal", "kill box", "docker stop", "docker stop", "clock",
	"agent move", "agent move", "delete keeping", "delete keeping", "remove box",
	"create", "create", "stop", "resume", "wake", "wake", "delete", "pause", "demote", "timeout", "exec", "stop at once",
}

// TestAgentsConverge applies random events to agents and their sandboxes, then none, and checks every agent and every prompt.
func TestAgentsConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		happens := rapid.Custom(func(rt *rapid.T) act {
			return act{rapid.SampledFrom(agentHappenings).Draw(rt, "what"), rapid.IntRange(0, 59).Draw(rt, "n")}
		})
		idle := rapid.IntRange(0, 3).Draw(rt, "idle") == 0
		script := append([]act{{"create", 0}, {"agent", 0}}, rapid.SliceOfN(happens, 5, 60).Draw(rt, "script")...)
		if err := playAgents(t, idle, script); err != nil {
			rt.Fatal(err)
		}
	})
}

// playAgents runs a script in a synctest bubble.
func playAgents(t *testing.T, idle bool, script []act) (err error) {
	t.Helper()
	dir, err := os.MkdirTemp(fastDir(), "agbox-agents-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(*testing.T) {
		p := &agentPlayer{player: newPlayer(dir), prompts: map[string]string{}, texts: map[string]string{}}
		p.shim.parks = func(b *fakeBox) bool { return apart(b.id)%2 == 0 }
		defer func() {
			if closeErr := p.close(); err == nil {
				err = closeErr
			}
		}()
		p.cfg = func(c *controller.Config) {
			if idle {
				c.Settings.IdleTTL = 20 * time.Second
			}
		}
		p.copiesSessions()
		if err = p.start(-1); err != nil {
			return
		}
		for i, a := range script {
			if err = p.do(a); err != nil {
				err = fmt.Errorf("act %d, %v: %w", i, a, err)
				return
			}
		}
		err = p.quiet()
	})
	return err
}

type agentPlayer struct {
	*player
	agents  []string
	prompts map[string]string // the agent, by prompt ID
	texts   map[string]string
}

func (p *agentPlayer) one(n int) string { return p.agents[n%len(p.agents)] }

func (p *agentPlayer) do(a act) error {
	ctx := context.Background()
	switch a.what {
	case "create":
		id := fmt.Sprintf("box-%d", len(p.boxes))
		p.boxes = append(p.boxes, id)
		name := fmt.Sprintf("name-%d", a.n%3)
		if p.named(name) {
			name = ""
		}
		_, err := p.store.CreateSandbox(ctx, id, name, &agboxv1.CreateSpec{Image: image, OnTimeout: []string{"", "pause", "delete"}[a.n%3]}, nil)
		return err
	case "agent":
		id := fmt.Sprintf("agent-%d", len(p.agents))
		if _, err := p.store.CreateAgent(ctx, id, "", p.spec(a.n)); err == nil {
			p.agents = append(p.agents, id)
		}
	case "prompt":
		texts := []string{
			"hello", "work 5000", "crash-before 2", "work 40000", "crash 3000", "exit 1000", "result-then-die", "result-then-exit 2000",
			"checkpoint x", "crash-before 3 2000", "hang", "until-nudged", "deaf", "queues 5000", "say 3000",
		}
		id := fmt.Sprintf("p-%d", len(p.prompts))
		text := texts[a.n%len(texts)]
		if _, err := p.store.QueuePrompt(ctx, p.one(a.n), id, text+" #"+id); err == nil {
			p.prompts[id], p.texts[id] = p.one(a.n), text
		}
	case "agent stop":
		_, _ = p.store.RequestAgentStop(ctx, p.one(a.n))
	case "agent start":
		_, _ = p.store.RequestAgentRun(ctx, p.one(a.n))
	case "agent delete":
		if a.n%4 == 0 {
			_, _ = p.store.RequestAgentDelete(ctx, p.one(a.n))
		}
	case "agent move":
		_, _ = p.store.RequestMove(ctx, p.one(a.n), p.box(a.n/7))
	case "delete keeping":
		_, _ = p.store.RequestDeleteKeepingAgents(ctx, p.box(a.n), "delete_requested")
	case "interrupt":
		_, _ = p.store.RequestInterrupt(ctx, p.one(a.n))
	case "drain":
		_, _ = p.daemon.Drain(ctx, store.DrainOptions{
			Mode: park, Wait: time.Duration(a.n) * time.Second, SaveEach: 5 * time.Second, SaveAll: 10 * time.Second,
		})
	case "detach":
		_, _ = p.daemon.Drain(ctx, store.DrainOptions{Mode: detach})
	case "undrain":
		_, _ = p.daemon.Undrain(ctx)
	case "hurry":
		_ = p.daemon.SaveNow(ctx)
	default:
		return p.player.do(a)
	}
	return nil
}

// named reports whether a live sandbox holds a name.
func (p *agentPlayer) named(name string) bool {
	all, _ := p.store.List(context.Background(), store.Filter{})
	return slices.ContainsFunc(all, func(sb store.Sandbox) bool {
		return sb.Name == name && sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE && sb.State != boxDeleted
	})
}

// spec returns one of many kinds of agents.
func (p *agentPlayer) spec(n int) *agboxv1.AgentSpec {
	flags := [][]string{nil, {"forgets"}, {"boot=3000"}, {"die=1", "until=3"}, {"die=2"}, {"stubborn"}, {"mute"}}[n%7]
	spec := &agboxv1.AgentSpec{
		SandboxId: p.box(n), Command: append([]string{"agent"}, flags...), StartTimeout: durationpb.New(10 * time.Second),
		RestartPolicy: []string{"", "always", "", "never"}[n/3%4], OnInterrupted: []string{"", "", "hold"}[n/5%3],
		Context: &agboxv1.AgentContextPolicy{MaxTurns: uint32(n % 4)},
	}
	if n%4 == 1 {
		spec.Format = dialect.Claude
	}
	if n%2 == 0 || n%3 == 0 {
		spec.Nudge = []string{"finish", "work 8000", "deaf"}[n%3]
	}
	if n%3 == 0 {
		spec.SaveCommand = []string{"sleep", fmt.Sprint(n * 1000), fmt.Sprint(n % 2)}
	}
	if n%5 == 0 {
		spec.Context.SummaryCommand = []string{"summarize", fmt.Sprint(n * 1000)}
	}
	if n%7 == 1 {
		spec.InitialPrompt = "begin"
	}
	return spec
}

func (p *agentPlayer) quiet() error {
	p.engine.Heal()
	p.engine.Down(false)
	if err := p.restart(-1); err != nil {
		return err
	}
	pass(settle)
	if err := p.check(); err != nil {
		return err
	}
	for _, id := range p.boxes { // paused sandboxes must resume unchanged
		_, _ = p.store.RequestResume(context.Background(), id)
	}
	pass(settle)
	if err := p.check(); err != nil {
		return fmt.Errorf("after a resume: %w", err)
	}
	return nil
}

func (p *agentPlayer) check() error {
	for _, id := range p.agents {
		if err := p.checkAgent(id); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	if p.sessions != nil { // the simulation copies none
		if err := p.sessions.check(p.store.LiveAgentIDs()); err != nil {
			return err
		}
	}
	for id := range p.prompts {
		if err := p.checkPrompt(id); err != nil {
			return fmt.Errorf("%s of %s: %w", id, p.prompts[id], err)
		}
	}
	for _, id := range p.boxes { // no agent keeps a sandbox from its desired state
		sb, err := p.store.Sandbox(context.Background(), id)
		if err != nil {
			return err
		}
		down := sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_STOP && sb.State != boxStopped && sb.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED
		left := sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE && sb.State != boxDeleted
		if down || left {
			return fmt.Errorf("%s is %s, wanted %s; %q", id, sb.State, sb.Desired.GetRunState(), p.daemon.Status(id))
		}
		if _, err := os.Stat(p.journals().Paths(id).Logs); sb.State == boxDeleted && err == nil && !p.isUnswept(id) {
			return fmt.Errorf("%s is deleted, and its files are there", id)
		}
	}
	return nil
}

// checkAgent: it is in its desired state, as far as its sandbox allows, and has a process exactly if its state says so.
func (p *agentPlayer) checkAgent(id string) error {
	ctx := context.Background()
	a, err := p.store.Agent(ctx, id)
	if err != nil {
		if slices.Contains(p.store.LiveAgentIDs(), id) {
			return err
		}
		return nil // it was deleted
	}
	sb, err := p.store.Sandbox(ctx, a.SandboxID)
	if err != nil {
		return err
	}
	line, unverified := p.daemon.AgentStatus(id)
	st := a.Status.GetState()
	lives := st == agentStarting || st == agentIdle || st == agentBusy
	processes := 0
	for _, x := range p.store.ActiveExecs(a.SandboxID) {
		if strings.HasPrefix(x, id+".") {
			processes++
		}
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s in a sandbox that is %s, %d processes, attempts %d, %q: %s", st, sb.State, processes, a.Status.GetAttempts(), line,
			fmt.Sprintf(format, args...))
	}
	run := a.Desired.GetRun()
	switch {
	case unverified || strings.HasPrefix(line, "retrying"):
		return fail("unverified %v", unverified)
	case lives && processes != 1 || !lives && processes != 0 && !p.asleep(sb.ID):
		return fail("the processes are not what the state says")
	case p.store.Destination(id) != "" && st != agentBusy && !p.asleep(sb.ID):
		return fail("it should have moved to %s", p.store.Destination(id))
	case run == storev1.AgentRun_AGENT_RUN_DELETE && !p.asleep(sb.ID):
		return fail("it was to be deleted")
	case sb.State == boxReady && run == storev1.AgentRun_AGENT_RUN_RUN && st != agentIdle && !p.restsWell(a):
		return fail("it should be IDLE")
	case sb.State == boxReady && run == storev1.AgentRun_AGENT_RUN_STOP && st != agentStopped:
		return fail("it was to be stopped")
	case sb.State != boxReady && lives && !p.asleep(sb.ID):
		return fail("it should be down")
	}
	events, err := allEvents(p.store, id)
	if err != nil {
		return err
	}
	return checkAgentHistory(events)
}

// restsWell reports whether there is a reason that an agent wanted to run is down.
func (p *agentPlayer) restsWell(a store.Agent) bool {
	policy := a.Spec.GetRestartPolicy()
	switch a.Status.GetState() {
	case agentFailed:
		return a.Status.GetNeedsAttention() || policy == "never" && !a.Status.GetParked()
	case agentBusy:
		return slices.Contains([]string{"hang", "until-nudged", "deaf"}, p.texts[a.Status.GetPromptId()])
	case agentStopped:
		return policy != "always" && !a.Status.GetParked()
	}
	return false
}

// checkPrompt: no process reads it twice, each process but one that reads it has its turn cut off, and unless it is queued or held it has a
// result, at most one of which is its own. It is held only after two ends of the process in its turn.
func (p *agentPlayer) checkPrompt(id string) error {
	agent := p.prompts[id]
	seen := map[string]int{}
	for _, g := range p.shim.said.prompts(id) {
		if strings.HasPrefix(g.execID, agent+".") {
			seen[g.execID]++
		}
	}
	for x, n := range seen {
		if n > 1 {
			return fmt.Errorf("read %d times by %s", n, x)
		}
	}
	a, err := p.store.Agent(context.Background(), agent)
	if err != nil {
		return nil //nolint:nilerr // it went with its agent
	}
	waits, held, err := p.waits(agent, id)
	events, err2 := allEvents(p.store, agent)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	var results, cuts, ends int
	for _, ev := range events {
		if r := ev.GetResult(); r != nil && r.GetPromptId() == id {
			results++
			if r.GetOutcome() == "interrupted" {
				cuts++
			}
		}
		switch tr := ev.GetTransition(); {
		case tr.GetPromptId() != id:
		case tr.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED, tr.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_EXITED:
			ends++
		}
	}
	whole := results - cuts
	switch {
	case len(seen) > cuts+1:
		return fmt.Errorf("given to %v, and %d turns were cut off", seen, cuts)
	case held && ends < 2 && a.Spec.GetOnInterrupted() != "hold":
		return fmt.Errorf("held after %d ends of the process", ends)
	case whole > 1, whole == 1 && waits:
		return fmt.Errorf("%d results, %d cut off; waits %v, held %v", results, cuts, waits, held)
	case whole == 1 && len(seen) == 0:
		return errors.New("it has a result without an event")
	case waits && !held && a.Status.GetState() == agentIdle && !p.asleep(a.SandboxID):
		return errors.New("it waits for an agent that is IDLE")
	case !waits && results == 0 && a.Status.GetPromptId() != id:
		return errors.New("it is lost")
	}
	return nil
}

func (p *agentPlayer) waits(agent, id string) (waits, held bool, err error) {
	list, err := p.store.QueuedPrompts(context.Background(), agent, 0)
	for _, q := range list {
		if q.GetPromptId() == id {
			waits, held = true, q.GetHeld()
		}
	}
	return waits, held, err
}
