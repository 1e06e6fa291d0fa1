package server

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

type promptStore interface {
	QueuePrompt(ctx context.Context, id, promptID, text string) (store.Queued, error)
	RequestInterrupt(ctx context.Context, id string) (changed bool, err error)
	RequestRedelivery(ctx context.Context, id, promptID string) (changed bool, err error)
	WithdrawPrompt(ctx context.Context, id, promptID string) (changed bool, err error)
}

// prompts handles the calls about the queue and the turns of agents.
type prompts struct{ store promptStore }

// InterruptAgent implements agbox.v1.AgentService.
func (s *prompts) InterruptAgent(ctx context.Context, req *agboxv1.InterruptAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.store.RequestInterrupt)
}

// PromptAgent implements agbox.v1.AgentService.
func (s *prompts) PromptAgent(ctx context.Context, req *agboxv1.PromptAgentRequest) (*agboxv1.PromptAgentResponse, error) {
	if err := validate.PromptAgent(req).Err(); err != nil {
		return nil, err
	}
	id := cmp.Or(req.GetPromptId(), uuid.NewString())
	q, err := s.store.QueuePrompt(ctx, req.GetAgentId(), id, req.GetText())
	return &agboxv1.PromptAgentResponse{PromptId: q.PromptID, Ahead: uint32(q.Ahead), LastEventSequence: q.Sequence}, err
}

// RedeliverPrompt implements agbox.v1.AgentService.
func (s *prompts) RedeliverPrompt(ctx context.Context, req *agboxv1.RedeliverPromptRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOfPrompt(ctx, req.GetAgentId(), req.GetPromptId(), s.store.RequestRedelivery)
}

// WithdrawPrompt implements agbox.v1.AgentService.
func (s *prompts) WithdrawPrompt(ctx context.Context, req *agboxv1.WithdrawPromptRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOfPrompt(ctx, req.GetAgentId(), req.GetPromptId(), s.store.WithdrawPrompt)
}

// requestOfPrompt makes a request about one prompt of an agent.
func requestOfPrompt(
	ctx context.Context, agentID, promptID string, method func(ctx context.Context, agentID, promptID string) (bool, error),
) (*agboxv1.AcceptedResponse, error) {
	if err := required("prompt_id", promptID); err != nil {
		return nil, err
	}
	return requestOf(ctx, "agent_id", agentID, func(ctx context.Context, id string) (bool, error) { return method(ctx, id, promptID) })
}
