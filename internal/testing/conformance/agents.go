package conformance

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// agents is what becomes of agents when they change their sandbox, or lose it.
func agents(t *testing.T, c *client) {
	c.sub(t, "an agent moves to another sandbox with its queue", func(c *client) {
		from, to := c.ready(), c.ready()
		id := c.hire(from)
		c.settled(id, from)
		c.prompt(id, "one")
		c.must(c.tryMove(id, to))
		c.prompt(id, "two")
		c.settled(id, to)
		c.must(c.tryMove(id, to))
		c.told(id, "one", "two")
		c.deletes(from)
		c.settled(id, to)
	})
	c.sub(t, "moves that can't be are refused", func(c *client) {
		id := c.hire(c.create())
		about := func(code codes.Code, reason, message string) refusal {
			return refusal{code, reason, message, map[string]string{"agent_id": id}}
		}
		c.refused(c.tryMove(id, ""), invalid("sandbox_id", "sandbox_id is required"))
		c.refused(c.tryMove("", "x"), invalid("agent_id", "agent_id is required"))
		none := newID()
		c.refused(c.tryMove(id, none), sandboxNotFound(none))
		gone := c.create()
		c.must(c.tryDelete(gone))
		c.refused(c.tryMove(id, gone), about(codes.FailedPrecondition, "AGENT_INVALID_STATE", "sandbox "+gone+" is being deleted"))
	})
	c.sub(t, "agents that are kept go on in the next sandbox of the name", func(c *client) {
		name := newID()
		first := c.named(name)
		id := c.hire(first)
		c.settled(id, first)
		c.prompt(id, "one")
		c.deleteKeeping(first)
		c.await(first, deleted)
		c.prompt(id, "two")
		if a := c.agent(id); a.GetSandboxId() != first || a.GetMovesTo() != name || a.GetDesiredState() != "running" {
			c.Errorf("without a sandbox: %v", a)
		}
		c.settled(id, c.named(name))
		c.told(id, "one", "two")
	})
	c.sub(t, "one stream follows all agents", func(c *client) {
		box := c.ready()
		first := c.hire(box)
		c.settled(first, box)
		f := c.feed(&agboxv1.SubscribeAgentsRequest{IncludeSandboxes: true})
		f.until(first, func(i *agboxv1.SubscribeAgentsItem) bool { return i.GetSandbox().GetSandboxId() == box })
		f.until(first, func(i *agboxv1.SubscribeAgentsItem) bool { return i.GetSynced() })
		c.prompt(first, "one")
		second := c.hire(box)
		for _, id := range []string{first, second} {
			f.until(id, func(i *agboxv1.SubscribeAgentsItem) bool {
				return slices.ContainsFunc(i.GetAgent().GetEvents(), func(e *agboxv1.AgentEvent) bool {
					return e.GetTransition().GetTo() == agboxv1.AgentState_AGENT_STATE_IDLE
				})
			})
		}
		c.settled(second, box)
		again := c.feed(&agboxv1.SubscribeAgentsRequest{Cursors: f.cursors(), Replay: true})
		c.must(c.tryDelete(box))
		for _, id := range []string{first, second} {
			again.until(id, func(i *agboxv1.SubscribeAgentsItem) bool {
				return i.GetAgent().GetCursor().GetAgentId() == id && i.GetAgent().GetAgent() == nil
			})
		}
		c.refused(errOf(c.feed(&agboxv1.SubscribeAgentsRequest{Cursors: []*agboxv1.AgentCursor{{}}}).Recv()),
			invalid("cursors[0].agent_id", "cursors[0].agent_id is required"))
	})
	c.sub(t, "a plain delete takes agents along", func(c *client) {
		box := c.ready()
		id := c.hire(box)
		c.settled(id, box)
		c.must(c.tryDelete(box))
		c.deleteKeeping(box) // the first request counts
		c.await(box, deleted)
		_, err := c.agents.GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
		c.refused(err, refusal{codes.NotFound, "AGENT_NOT_FOUND", "agent " + id + " was not found", map[string]string{"agent_id": id}})
	})
}

// answering answers each line of its input, in the plainest way.
const answering = `echo '{"type":"ready"}'; while read -r line; do echo '{"type":"assistant.completed"}'; done`

// hire records an agent and returns its ID. It is deleted when the test ends.
func (c *client) hire(box string) string {
	c.Helper()
	id := newID()
	spec := &agboxv1.AgentSpec{SandboxId: box, Command: []string{"sh", "-c", answering}}
	_, err := c.agents.CreateAgent(c.ctx(), &agboxv1.CreateAgentRequest{AgentId: id, Spec: spec})
	c.must(err)
	c.Cleanup(func() {
		_, _ = c.agents.DeleteAgent(c.ctx(), &agboxv1.DeleteAgentRequest{AgentId: id}) // some are gone
	})
	return id
}

// named records a sandbox with a name.
func (c *client) named(name string) string {
	c.Helper()
	id := newID()
	c.must(c.tryPlain(id, name))
	return id
}

func (c *client) deleteKeeping(id string) {
	c.Helper()
	c.must(accepted(c.DeleteSandbox(c.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id, KeepAgents: true})))
}

func (c *client) tryMove(id, box string) error {
	_, err := c.agents.MoveAgent(c.ctx(), &agboxv1.MoveAgentRequest{AgentId: id, SandboxId: box})
	return err
}

func (c *client) prompt(id, text string) {
	c.Helper()
	_, err := c.agents.PromptAgent(c.ctx(), &agboxv1.PromptAgentRequest{AgentId: id, PromptId: id + "-" + text, Text: text})
	c.must(err)
}

func (c *client) agent(id string) *agboxv1.AgentHandle {
	c.Helper()
	resp, err := c.agents.GetAgent(c.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
	c.must(err)
	return resp.GetAgent()
}

// settled waits until an agent is IDLE in a sandbox, and has nothing to do and nowhere to go.
func (c *client) settled(id, box string) {
	c.Helper()
	c.eventually(func() bool {
		a := c.agent(id)
		return a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && a.GetSandboxId() == box && a.GetMovesTo() == "" && a.GetQueuedPrompts() == 0
	})
}

// told checks the texts that an agent received, in order.
func (c *client) told(id string, want ...string) {
	c.Helper()
	resp, err := c.agents.GetAgentConversation(c.ctx(), &agboxv1.GetAgentConversationRequest{AgentId: id})
	c.must(err)
	var got []string
	for _, turn := range resp.GetTurns() {
		if turn.GetRole() == "user" {
			got = append(got, turn.GetContent())
		}
	}
	if !slices.Equal(got, want) {
		c.Errorf("%s was told %q, want %q", id, got, want)
	}
}

// feed is a subscription to all agents with all changes of their states.
type feed struct {
	grpc.ServerStreamingClient[agboxv1.SubscribeAgentsItem]
	c     *client
	after map[string]*agboxv1.AgentCursor
	seen  []*agboxv1.SubscribeAgentsItem
}

func (c *client) feed(req *agboxv1.SubscribeAgentsRequest) *feed {
	c.Helper()
	req.EventTypes = []agboxv1.AgentEventType{agboxv1.AgentEventType_AGENT_STATE_CHANGED}
	s, err := c.agents.SubscribeAgents(c.ctx(), req)
	c.must(err)
	return &feed{ServerStreamingClient: s, c: c, after: map[string]*agboxv1.AgentCursor{}}
}

// until reads until an item that is wanted, about the agent if it is about an agent, was read; it may have been read before.
func (f *feed) until(agentID string, wanted func(*agboxv1.SubscribeAgentsItem) bool) {
	f.c.Helper()
	match := func(i *agboxv1.SubscribeAgentsItem) bool {
		id := i.GetAgent().GetCursor().GetAgentId()
		return (id == "" || id == agentID) && wanted(i)
	}
	for !slices.ContainsFunc(f.seen, match) {
		item, err := f.Recv()
		f.c.must(err)
		if cursor := item.GetAgent().GetCursor(); cursor != nil {
			f.after[cursor.GetAgentId()] = cursor
		}
		f.seen = append(f.seen, item)
	}
}

func (f *feed) cursors() []*agboxv1.AgentCursor { return slices.Collect(maps.Values(f.after)) }
