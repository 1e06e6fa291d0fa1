package conformance

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// crew is a client that deals with agents.
type crew struct {
	*client
	agents agboxv1.AgentServiceClient
}

func newCrew(c *client) crew { return crew{c, agboxv1.NewAgentServiceClient(c.conn)} }

// agents is what becomes of agents when they change their sandbox, or lose it.
func agents(t *testing.T, c *client) {
	c.sub(t, "an agent moves to another sandbox with its queue", func(c *client) {
		w := newCrew(c)
		from, to := w.ready(), w.ready()
		id := w.hire(from)
		w.settled(id, from)
		w.prompt(id, "one")
		w.move(id, to)
		w.prompt(id, "two")
		w.settled(id, to)
		w.move(id, to)
		w.told(id, "one", "two")
		w.deletes(from)
		w.settled(id, to)
	})
	c.sub(t, "moves that can't be are refused", func(c *client) {
		w := newCrew(c)
		id := w.hire(w.create())
		about := func(code codes.Code, reason, message string) refusal {
			return refusal{code, reason, message, map[string]string{"agent_id": id}}
		}
		w.refused(w.tryMove(id, ""), invalid("sandbox_id", "sandbox_id is required"))
		w.refused(w.tryMove("", "x"), invalid("agent_id", "agent_id is required"))
		none := newID()
		w.refused(w.tryMove(id, none), sandboxNotFound(none))
		gone := w.create()
		w.delete(gone)
		w.refused(w.tryMove(id, gone), about(codes.FailedPrecondition, "AGENT_INVALID_STATE", "sandbox "+gone+" is being deleted"))
	})
	c.sub(t, "agents that are kept go on in the next sandbox of the name", func(c *client) {
		w := newCrew(c)
		name := newID()
		first := w.named(name)
		id := w.hire(first)
		w.settled(id, first)
		w.prompt(id, "one")
		w.deleteKeeping(first)
		w.await(first, deleted)
		w.prompt(id, "two")
		if a := w.agent(id); a.GetSandboxId() != first || a.GetMovesTo() != name || a.GetDesiredState() != "running" {
			c.Errorf("without a sandbox: %v", a)
		}
		w.settled(id, w.named(name))
		w.told(id, "one", "two")
	})
	c.sub(t, "a plain delete takes agents along", func(c *client) {
		w := newCrew(c)
		box := w.ready()
		id := w.hire(box)
		w.settled(id, box)
		w.delete(box)
		w.deleteKeeping(box) // the first request counts
		w.await(box, deleted)
		_, err := w.agents.GetAgent(w.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
		w.refused(err, refusal{codes.NotFound, "AGENT_NOT_FOUND", "agent " + id + " was not found", map[string]string{"agent_id": id}})
	})
}

// answering answers each line of its input, in the plainest way.
const answering = `echo '{"type":"ready"}'; while read -r line; do echo '{"type":"assistant.completed"}'; done`

// hire records an agent and returns its ID. It is deleted when the test ends.
func (w crew) hire(box string) string {
	w.Helper()
	id := newID()
	spec := &agboxv1.AgentSpec{SandboxId: box, Command: []string{"sh", "-c", answering}}
	_, err := w.agents.CreateAgent(w.ctx(), &agboxv1.CreateAgentRequest{AgentId: id, Spec: spec})
	w.must(err)
	w.Cleanup(func() {
		_, _ = w.agents.DeleteAgent(w.ctx(), &agboxv1.DeleteAgentRequest{AgentId: id}) // some are gone
	})
	return id
}

// named records a sandbox with a name.
func (w crew) named(name string) string {
	w.Helper()
	id := newID()
	w.must(w.tryPlain(id, name))
	return id
}

func (w crew) deleteKeeping(id string) {
	w.Helper()
	w.must(accepted(w.DeleteSandbox(w.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id, KeepAgents: true})))
}

func (w crew) tryMove(id, box string) error {
	_, err := w.agents.MoveAgent(w.ctx(), &agboxv1.MoveAgentRequest{AgentId: id, SandboxId: box})
	return err
}

func (w crew) move(id, box string) {
	w.Helper()
	w.must(w.tryMove(id, box))
}

func (w crew) prompt(id, text string) {
	w.Helper()
	_, err := w.agents.PromptAgent(w.ctx(), &agboxv1.PromptAgentRequest{AgentId: id, PromptId: id + "-" + text, Text: text})
	w.must(err)
}

func (w crew) agent(id string) *agboxv1.AgentHandle {
	w.Helper()
	resp, err := w.agents.GetAgent(w.ctx(), &agboxv1.GetAgentRequest{AgentId: id})
	w.must(err)
	return resp.GetAgent()
}

// settled waits until an agent is IDLE in a sandbox, and has nothing to do and nowhere to go.
func (w crew) settled(id, box string) {
	w.Helper()
	w.eventually(func() bool {
		a := w.agent(id)
		return a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && a.GetSandboxId() == box && a.GetMovesTo() == "" && a.GetQueuedPrompts() == 0
	})
}

// told checks what an agent was told, in order.
func (w crew) told(id string, want ...string) {
	w.Helper()
	resp, err := w.agents.GetAgentConversation(w.ctx(), &agboxv1.GetAgentConversationRequest{AgentId: id})
	w.must(err)
	var got []string
	for _, turn := range resp.GetTurns() {
		if turn.GetRole() == "user" {
			got = append(got, turn.GetContent())
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("%s was told %q, want %q", id, got, want)
	}
}
