//go:build docker

package e2e

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// TestATurnContinuesAfterALostDatabase: what was said, what is being worked on and what waits are there again, and nothing is told
// or taken in twice.
func TestATurnContinuesAfterALostDatabase(t *testing.T) {
	c := patient(t)
	c.remember()
	before := map[string][]*agboxv1.AgentEvent{}
	for _, f := range formats {
		c.tell(f.id, "work", "echo begun\n"+untilReleased+"echo worked")
		c.tell(f.id, "next", "what did I say?")
		c.awaitAgent(f.id, agentBusy)
	}
	for _, f := range formats {
		before[f.id] = c.agentEvents(f.id)
	}
	c.killLogged()
	c.lose(theDatabase)
	c.start()
	for _, f := range formats {
		if a := c.agent(f.id); a.GetState() != agentBusy || a.GetPromptId() != "work" || a.GetQueuedPrompts() != 1 || a.GetIncarnation() != 1 {
			t.Errorf("%s: %v", f.id, a)
		}
	}
	c.release(c.box)
	for _, f := range formats {
		c.result(f.id, "next")
		c.wantWhole(f.id, before[f.id])
	}
	c.killLogged()
	c.lose(theDatabase)
	c.start()
	for _, f := range formats {
		if got := c.ask(f.id, "again", "what did I say?"); got != "you said: a plum" {
			t.Errorf("after another loss %s says %q", f.id, got)
		}
	}
	c.checksOut()
	c.remove(c.box)
}

// wantWhole checks that the history goes on from what it was, with one end of each turn, in one life.
func (c *crew) wantWhole(id string, before []*agboxv1.AgentEvent) {
	c.Helper()
	events := c.agentEvents(id)
	kept := func(e *agboxv1.AgentEvent) bool { // a superseded snapshot may have gone since
		return slices.ContainsFunc(events, func(is *agboxv1.AgentEvent) bool { return proto.Equal(is, e) }) || e.GetPart() != nil
	}
	for _, e := range before {
		if !kept(e) {
			c.Errorf("%s: lost is %v", id, e)
		}
	}
	var ends []string
	for _, e := range events {
		if r := e.GetResult(); r != nil {
			ends = append(ends, r.GetPromptId()+" "+r.GetOutcome())
		}
	}
	if got := strings.Join(ends, ", "); got != "told end_turn, work end_turn, next end_turn" {
		c.Errorf("%s: its turns ended with %s", id, got)
	}
	var said []string
	for _, turn := range c.turns(id) {
		if turn.GetRole() == "assistant" {
			said = append(said, strings.ReplaceAll(turn.GetContent(), "\n", ""))
		}
	}
	if got := strings.Join(said, ", "); got != "noted a plum, begunworked, you said: a plum" {
		c.Errorf("%s has said %s", id, got)
	}
	if a := c.agent(id); a.GetIncarnation() != 1 {
		c.Errorf("%s is in life %d", id, a.GetIncarnation())
	}
}

// TestAnAgentOutlivesTheLossOfItsSandbox: of the sandbox the engine shows nothing, and the agent moves to another one with its past.
func TestAnAgentOutlivesTheLossOfItsSandbox(t *testing.T) {
	c := patient(t)
	c.hire("ada-1", "native", "native")
	c.awaitAgent("ada-1", agentIdle)
	c.ask("ada-1", "told", "remember a plum")
	c.killLogged()
	c.docker("rm", "-fv", naming.Primary(c.box))
	for _, id := range strings.Fields(c.docker("network", "ls", "-q", "--filter", "label="+naming.SandboxID+"="+c.box)) {
		c.docker("network", "rm", id)
	}
	c.lose(theDatabase)
	c.cutMark()
	c.start()
	c.awaitAgent("ada-1", agentFailed)
	lost := c.box
	c.box = newCrew(c.daemon).box
	must(c.agents().MoveAgent(c.ctx(), &agboxv1.MoveAgentRequest{AgentId: "ada-1", SandboxId: c.box}))(t)
	a := c.awaitAgent("ada-1", agentIdle)
	if a.GetSandboxId() != c.box || a.GetSandboxId() == lost {
		t.Errorf("it is in %s", a.GetSandboxId())
	}
	if got := c.ask("ada-1", "asked", "what did I say?"); got != "you said: a plum" {
		t.Errorf("it says %q", got)
	}
	c.checksOut()
	c.remove(c.box)
	c.remove(lost)
}

// TestAnAgentWhoseLogIsLostTooIsNotMadeAgain: its ID stays in use as long as an exec shows that there was one.
func TestAnAgentWhoseLogIsLostTooIsNotMadeAgain(t *testing.T) {
	c := patient(t)
	c.hire("ada-1", "native", "native")
	c.awaitAgent("ada-1", agentIdle)
	c.kill()
	c.lose(theDatabase, theLog)
	c.start()
	if list := must(c.agents().ListAgents(c.ctx(), &agboxv1.ListAgentsRequest{}))(t); len(list.GetAgents()) != 0 {
		t.Errorf("there are %v", list)
	}
	spec := &agboxv1.AgentSpec{SandboxId: c.box, Command: []string{"/bin/testagent", "native"}}
	if _, err := c.agents().CreateAgent(c.ctx(), &agboxv1.CreateAgentRequest{AgentId: "ada-1", Spec: spec}); err == nil {
		t.Error("the ID is free")
	}
	c.remove(c.box)
}
