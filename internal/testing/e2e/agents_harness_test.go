//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/apis/enum"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	agentIdle    = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy    = agboxv1.AgentState_AGENT_STATE_BUSY
	agentStopped = agboxv1.AgentState_AGENT_STATE_STOPPED
	agentFailed  = agboxv1.AgentState_AGENT_STATE_FAILED
)

// formats are those of agents, with the word by which the test agent knows them and the way by which a new process gets
// its past.
var formats = []struct{ id, format, word, rung string }{
	{"speaks-native", "native", "native", "CONTEXT"}, {"speaks-claude", "claude-stream-json", "claude", "NATIVE"},
	{"speaks-acp", "acp", "acp", "NATIVE"},
}

// crew are the agents of one sandbox.
type crew struct {
	*daemon
	box string
}

// newCrew is a sandbox in which the test agent can run.
func newCrew(d *daemon, mounts ...*agboxv1.MountSpec) *crew {
	d.Helper()
	mounts = append(mounts, &agboxv1.MountSpec{Source: filepath.Join(binaries, "testagent"), Target: "/bin/testagent"})
	c := &crew{daemon: d, box: d.create(&agboxv1.CreateSpec{Mounts: mounts})}
	d.await(c.box, ready)
	return c
}

func (d *daemon) agents() agboxv1.AgentServiceClient {
	return agboxv1.NewAgentServiceClient(agboxv1.Declare(d.conn))
}

func (d *daemon) admin() agboxv1.AdminServiceClient {
	return agboxv1.NewAdminServiceClient(agboxv1.Declare(d.conn))
}

// hire makes an agent with the test agent as its program.
func (c *crew) hire(id, format, word string, change ...func(*agboxv1.AgentSpec)) string {
	c.Helper()
	spec := &agboxv1.AgentSpec{SandboxId: c.box, Command: []string{"/bin/testagent", word}, Format: format}
	for _, f := range change {
		f(spec)
	}
	must(c.agents().CreateAgent(c.ctx(), &agboxv1.CreateAgentRequest{AgentId: id, Spec: spec}))(c)
	return id
}

// hireAll makes an agent of each format and waits for them.
func (c *crew) hireAll(change ...func(*agboxv1.AgentSpec)) {
	c.Helper()
	for _, f := range formats {
		c.hire(f.id, f.format, f.word, change...)
	}
	for _, f := range formats {
		c.awaitAgent(f.id, agentIdle)
	}
}

func (c *crew) agent(id string) *agboxv1.AgentHandle {
	c.Helper()
	return must(c.agents().GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id}))(c).GetAgent()
}

// agentIs waits until an agent is as wanted, across restarts of the daemon.
func (c *crew) agentIs(id, what string, is func(*agboxv1.AgentHandle) bool) *agboxv1.AgentHandle {
	c.Helper()
	var a *agboxv1.AgentHandle
	c.eventually(id+" is "+what, func() error {
		resp, err := c.agents().GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
		if err != nil {
			return err
		}
		if a = resp.GetAgent(); !is(a) {
			return fmt.Errorf("is %s, incarnation %d: %s", a.GetState(), a.GetIncarnation(), a.GetStatusMessage())
		}
		return nil
	})
	return a
}

func (c *crew) awaitAgent(id string, want agboxv1.AgentState) *agboxv1.AgentHandle {
	c.Helper()
	return c.agentIs(id, want.String(), func(a *agboxv1.AgentHandle) bool { return a.GetState() == want })
}

// awaitLife waits until the n-th process of an agent is ready.
func (c *crew) awaitLife(id string, n uint64) {
	c.Helper()
	c.agentIs(id, fmt.Sprint("idle in life ", n), func(a *agboxv1.AgentHandle) bool {
		return a.GetState() == agentIdle && a.GetIncarnation() == n
	})
}

// tell gives a prompt and returns where its events begin.
func (c *crew) tell(id, promptID, text string) uint64 {
	c.Helper()
	req := &agboxv1.PromptAgentRequest{AgentId: id, PromptId: promptID, Text: text}
	return must(c.agents().PromptAgent(c.ctx(), req))(c).GetLastEventSequence()
}

// untilReleased starts the text of a turn that is busy until release, and then runs the shell's command behind it.
const untilReleased = "run until test -e /tmp/released; do sleep 0.05; done; "

// release ends the turns that wait in a sandbox.
func (c *crew) release(box string) { c.Helper(); c.sh(box, "touch /tmp/released") }

// result waits for the end of a prompt's turn.
func (c *crew) result(id, promptID string) *agboxv1.AgentResult {
	c.Helper()
	var r *agboxv1.AgentResult
	c.eventually(fmt.Sprintf("%s answers %s", id, promptID), func() error {
		events, err := c.eventsIfServed(id)
		for _, e := range events {
			if got := e.GetResult(); got.GetPromptId() == promptID {
				r = got
				return nil
			}
		}
		return errors.Join(fmt.Errorf("no result among %d events", len(events)), err)
	})
	return r
}

// ask gives a prompt, waits for the end of its turn and returns what was said in it last.
func (c *crew) ask(id, promptID, text string) string {
	c.Helper()
	c.tell(id, promptID, text)
	if r := c.result(id, promptID); r.GetOutcome() != "end_turn" {
		c.Errorf("%s: %s ended with %s %s", id, text, r.GetOutcome(), r.GetError())
	}
	turns := c.turns(id)
	if last := turns[len(turns)-1]; last.GetRole() == "assistant" {
		return last.GetContent()
	}
	return ""
}

func (c *crew) turns(id string) []*agboxv1.ConversationTurn {
	c.Helper()
	return must(c.agents().GetAgentConversation(c.ctx(), &agboxv1.GetAgentConversationRequest{AgentId: id}))(c).GetTurns()
}

// agentEvents are all that are kept of an agent.
func (c *crew) agentEvents(id string) []*agboxv1.AgentEvent {
	c.Helper()
	list, err := c.eventsIfServed(id)
	if err != nil {
		c.Fatalf("events of %s: %v", id, err)
	}
	return list
}

// eventsIfServed is agentEvents of a daemon that may die meanwhile.
func (c *crew) eventsIfServed(id string) (list []*agboxv1.AgentEvent, err error) {
	c.Helper()
	resp, err := c.agents().GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
	if err != nil {
		return nil, err
	}
	stream, err := c.agents().SubscribeAgentEvents(c.ctx(), &agboxv1.SubscribeAgentEventsRequest{AgentId: id})
	if err != nil {
		return nil, err
	}
	for len(list) == 0 || list[len(list)-1].GetSequence() < resp.GetAgent().GetLastEventSequence() {
		e, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && e.GetSequence() <= list[n-1].GetSequence() {
			c.Fatalf("event %d of %s follows %d", e.GetSequence(), id, list[n-1].GetSequence())
		}
		list = append(list, e)
	}
	return list, nil
}

// moves are the transitions of an agent: "SPAWN/CONTEXT CONNECTED ...".
func (c *crew) moves(id string) string {
	c.Helper()
	resp := must(c.agents().ListAgentTransitions(c.ctx(), &agboxv1.ListAgentTransitionsRequest{AgentId: id}))(c)
	var names []string
	for _, tr := range resp.GetTransitions() {
		name := enum.Word(tr.GetTrigger())
		if rung := enum.Word(tr.GetRung()); rung != "UNSPECIFIED" {
			name += "/" + rung
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// kill9 ends an agent's process as a crash would.
func (c *crew) kill9(id string) {
	c.Helper()
	pid := c.ask(id, "pid-"+fmt.Sprint(c.agent(id).GetLastEventSequence()), "pid")
	c.sh(c.box, "kill -9 "+strings.TrimPrefix(pid, "pid "))
}

// drain asks for one and waits for its end.
func (c *crew) drain(req *agboxv1.DrainRequest) *agboxv1.DrainStatus {
	c.Helper()
	must(c.admin().Drain(c.ctx(), req))(c)
	return c.drained()
}

func (c *crew) drained() (s *agboxv1.DrainStatus) {
	c.Helper()
	c.eventually("the drain is done", func() error {
		resp, err := c.admin().GetDrainStatus(c.ctx(), &agboxv1.GetDrainStatusRequest{})
		if err != nil {
			return err
		}
		if s = resp.GetStatus(); s.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE {
			return errors.New(s.String())
		}
		return nil
	})
	return s
}

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

// patient is a test of a crew on the engine that is there.
func patient(t *testing.T, mounts ...*agboxv1.MountSpec) *crew {
	t.Helper()
	t.Parallel()
	return newCrew(newDaemon(t, "", ""), mounts...)
}
