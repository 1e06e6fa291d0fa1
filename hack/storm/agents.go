package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// agent creates an agent in a sandbox or, if there is one, sends it a prompt.
func (c *client) agent(ctx context.Context, b *box) {
	if b.kind == small {
		return // the kernel may kill its processes for lack of memory
	}
	if b.agent == "" {
		id := "agent-of-" + b.id
		spec := &agboxv1.AgentSpec{SandboxId: b.id, Command: []string{"/storm/testagent", "native"}}
		if c.asked(ctx, "agent", id, byID, to(c.crew.CreateAgent, &agboxv1.CreateAgentRequest{AgentId: id, Spec: spec})) {
			b.agent = id
		}
		return
	}
	b.told++
	t := task{prompt: fmt.Sprintf("prompt-%s-%d", b.id, b.told), agent: b.agent, sandbox: b.id}
	req := &agboxv1.PromptAgentRequest{AgentId: t.agent, PromptId: t.prompt, Text: "count 20 30\necho " + answerTo(t)}
	if c.asked(ctx, "prompt", t.prompt, byID, to(c.crew.PromptAgent, req)) {
		c.book.acceptPrompt(t)
	}
}

// answerTo returns the text of an agent at the end of its turn.
func answerTo(t task) string { return "answer to " + t.prompt + "." }

// answers reads every agent's conversation and checks that each accepted prompt was answered once or still waits for an agent that does not
// work. An agent may be deleted with its sandbox.
func (s *storm) answers(ctx context.Context, api agboxv1.SandboxServiceClient, crew agboxv1.AgentServiceClient) {
	byAgent := map[string][]task{}
	for _, t := range s.book.prompts {
		byAgent[t.agent] = append(byAgent[t.agent], t)
	}
	for id, tasks := range byAgent {
		if err := s.answersOf(ctx, api, crew, id, tasks); err != nil {
			s.book.problem("conversation of %s: %v", id, err)
		}
	}
}

func (s *storm) answersOf(ctx context.Context, api agboxv1.SandboxServiceClient, crew agboxv1.AgentServiceClient, id string, tasks []task) error {
	sb, err := api.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: tasks[0].sandbox})
	if err != nil {
		return err
	}
	a, err := crew.GetAgent(ctx, &agboxv1.GetAgentRequest{AgentId: id})
	if status.Code(err) == codes.NotFound && sb.GetSandbox().GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
		for range tasks {
			s.book.count("prompts gone with their sandbox")
		}
		return nil
	}
	if err != nil {
		return err
	}
	works := sb.GetSandbox().GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY && a.GetAgent().GetState() == agboxv1.AgentState_AGENT_STATE_IDLE
	said, err := conversation(ctx, crew, id)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		n := 0
		for _, turn := range said {
			if turn.GetRole() == "assistant" && !turn.GetInterrupted() {
				n += strings.Count(turn.GetContent(), answerTo(t))
			}
		}
		queue := a.GetAgent().GetQueue()
		waits := a.GetAgent().GetPromptId() == t.prompt || len(queue) < int(a.GetAgent().GetQueuedPrompts()) ||
			slices.ContainsFunc(queue, func(q *agboxv1.AgentQueuedPrompt) bool { return q.GetPromptId() == t.prompt })
		switch {
		case n == 1:
			s.book.count("prompts answered")
		case n == 0 && waits && !works:
			s.book.count("prompts that wait for their agent")
		default:
			s.book.problem("%s of %s was answered %d times; the agent is %s with %d prompts", t.prompt, id, n, a.GetAgent().GetState(), len(queue))
		}
	}
	return nil
}

const maxPages = 100

// conversation returns all stored turns.
func conversation(ctx context.Context, crew agboxv1.AgentServiceClient, id string) (turns []*agboxv1.ConversationTurn, err error) {
	var before uint64
	for range maxPages {
		resp, err := crew.GetAgentConversation(ctx, &agboxv1.GetAgentConversationRequest{AgentId: id, BeforeSequence: before})
		if err != nil {
			return nil, err
		}
		turns = append(resp.GetTurns(), turns...)
		if resp.GetTruncated() {
			return nil, errors.New("older events were dropped: too many prompts for one agent")
		}
		if !resp.GetMore() || len(turns) == 0 {
			return turns, nil
		}
		before = turns[0].GetSequence()
	}
	return nil, errors.New("too many pages")
}
