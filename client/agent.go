package client

import (
	"context"

	"github.com/agbox/agbox/apis/enum"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// CreateAgent records an agent of a live sandbox; it is started once the sandbox is READY, see WaitAgent. With the caller's
// own agent_id a create whose answer was lost can be repeated: it then fails with AGENT_ID_ALREADY_EXISTS if the first
// one was accepted.
func (c *Client) CreateAgent(ctx context.Context, req *agboxv1.CreateAgentRequest) (*agboxv1.AgentHandle, error) {
	resp, err := call(ctx, c, c.agents.CreateAgent, req)
	return resp.GetAgent(), err
}

// GetAgent reads one agent by ID or by name.
func (c *Client) GetAgent(ctx context.Context, idOrName string) (*agboxv1.AgentHandle, error) {
	resp, err := read(ctx, c, c.agents.GetAgent, &agboxv1.GetAgentRequest{AgentId: idOrName})
	return resp.GetAgent(), err
}

// ListAgents reads agents, newest first, without their specs: those of one sandbox, or of all when sandboxID is empty. An
// empty selector selects all.
func (c *Client) ListAgents(ctx context.Context, sandboxID string, selector map[string]string) ([]*agboxv1.AgentHandle, error) {
	resp, err := read(ctx, c, c.agents.ListAgents, &agboxv1.ListAgentsRequest{SandboxId: sandboxID, LabelSelector: selector})
	return resp.GetAgents(), err
}

// StartAgent requests that a STOPPED or FAILED agent runs, and resets its count of attempts.
func (c *Client) StartAgent(ctx context.Context, agentID string) error {
	return request(ctx, c, c.agents.StartAgent, &agboxv1.StartAgentRequest{AgentId: agentID})
}

// StopAgent requests the end of the agent's process. The conversation and queued prompts are kept.
func (c *Client) StopAgent(ctx context.Context, agentID string) error {
	return request(ctx, c, c.agents.StopAgent, &agboxv1.StopAgentRequest{AgentId: agentID})
}

// DeleteAgent requests the end of the process and the removal of the conversation. Idempotent.
func (c *Client) DeleteAgent(ctx context.Context, agentID string) error {
	return request(ctx, c, c.agents.DeleteAgent, &agboxv1.DeleteAgentRequest{AgentId: agentID})
}

// MoveAgent requests the move of an agent to another sandbox, by ID or name, with its conversation and its queue; see AgentMoved. The
// daemon waits for the end of a turn. A move to the sandbox in which the agent is withdraws an earlier request.
func (c *Client) MoveAgent(ctx context.Context, agentID, sandbox string) error {
	return request(ctx, c, c.agents.MoveAgent, &agboxv1.MoveAgentRequest{AgentId: agentID, SandboxId: sandbox})
}

// PromptAgent queues a prompt. It retries while the daemon does not answer, which is safe because the prompt has an ID: that
// of req, or a new one.
func (c *Client) PromptAgent(ctx context.Context, req *agboxv1.PromptAgentRequest) (*agboxv1.PromptAgentResponse, error) {
	if req.GetPromptId() == "" {
		req = proto.CloneOf(req)
		req.PromptId = uuid.NewString()
	}
	return read(ctx, c, c.agents.PromptAgent, req)
}

// RedeliverPrompt returns a held prompt to the agent's queue.
func (c *Client) RedeliverPrompt(ctx context.Context, agentID, promptID string) error {
	return request(ctx, c, c.agents.RedeliverPrompt, &agboxv1.RedeliverPromptRequest{AgentId: agentID, PromptId: promptID})
}

// WithdrawPrompt removes a prompt that waits or is held.
func (c *Client) WithdrawPrompt(ctx context.Context, agentID, promptID string) error {
	return request(ctx, c, c.agents.WithdrawPrompt, &agboxv1.WithdrawPromptRequest{AgentId: agentID, PromptId: promptID})
}

// InterruptAgent asks a BUSY agent to end its turn.
func (c *Client) InterruptAgent(ctx context.Context, agentID string) error {
	return request(ctx, c, c.agents.InterruptAgent, &agboxv1.InterruptAgentRequest{AgentId: agentID})
}

// AgentConversation reads the newest turns, or all retained turns if last is 0. The answer says whether older ones were
// dropped.
func (c *Client) AgentConversation(ctx context.Context, agentID string, last uint32) (*agboxv1.GetAgentConversationResponse, error) {
	req := &agboxv1.GetAgentConversationRequest{AgentId: agentID, LastTurns: last}
	all, err := read(ctx, c, c.agents.GetAgentConversation, req)
	for page := all; err == nil && page.GetMore() && len(page.GetTurns()) > 0; {
		req.BeforeSequence = page.GetTurns()[0].GetSequence()
		if last > 0 {
			req.LastTurns = last - uint32(len(all.GetTurns()))
		}
		if page, err = read(ctx, c, c.agents.GetAgentConversation, req); err == nil {
			all.Turns, all.More = append(page.GetTurns(), all.GetTurns()...), page.GetMore()
		}
	}
	return all, err
}

// AgentContext reads the context that a new process of the agent would get.
func (c *Client) AgentContext(ctx context.Context, agentID string) (string, error) {
	resp, err := read(ctx, c, c.agents.GetAgentConversation, &agboxv1.GetAgentConversationRequest{AgentId: agentID, AsContext: true})
	return resp.GetContext(), err
}

// AgentTransitions reads all retained changes of the agent's state with a number above after, oldest first.
func (c *Client) AgentTransitions(ctx context.Context, agentID string, after uint64) ([]*agboxv1.AgentTransition, error) {
	var all []*agboxv1.AgentTransition
	for {
		resp, err := read(ctx, c, c.agents.ListAgentTransitions, &agboxv1.ListAgentTransitionsRequest{AgentId: agentID, After: after})
		page := resp.GetTransitions()
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, after = append(all, page...), page[len(page)-1].GetNumber()
	}
}

// AgentRungName returns the name of a rung, such as "NATIVE"; empty for none.
func AgentRungName(r agboxv1.AgentRung) string {
	if r == agboxv1.AgentRung_AGENT_RUNG_UNSPECIFIED {
		return ""
	}
	return enum.Word(r)
}
