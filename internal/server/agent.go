package server

import (
	"cmp"
	"context"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

// CreateAgent implements agbox.v1.AgentService.
func (s *Server) CreateAgent(ctx context.Context, req *agboxv1.CreateAgentRequest) (*agboxv1.CreateAgentResponse, error) {
	if err := validate.CreateAgent(req).Err(); err != nil {
		return nil, err
	}
	spec := validate.NormalizeAgent(req.GetSpec())
	var err error
	if spec.SandboxId, err = s.sandboxOf(ctx, spec.GetSandboxId()); err != nil {
		return nil, err
	}
	id := cmp.Or(req.GetAgentId(), uuid.NewString())
	a := plannedAgent(id, req.GetName(), spec)
	if req.GetDryRun() {
		err = s.deps.Store.CheckCreateAgent(ctx, id, req.GetName(), spec)
	} else {
		a, err = s.deps.Store.CreateAgent(ctx, id, req.GetName(), spec)
	}
	if err != nil {
		return nil, err
	}
	return &agboxv1.CreateAgentResponse{Agent: s.agentHandle(a, true)}, nil
}

// plannedAgent returns the agent that a create would record.
func plannedAgent(id, name string, spec *agboxv1.AgentSpec) store.Agent {
	run := storev1.AgentRun_AGENT_RUN_RUN
	if spec.GetDesiredState() == desiredStopped {
		run = storev1.AgentRun_AGENT_RUN_STOP
	}
	return store.Agent{
		ID: id, Name: name, SandboxID: spec.GetSandboxId(), Spec: spec, Desired: &storev1.AgentDesired{Run: run},
		Status: &storev1.AgentStatus{State: agboxv1.AgentState_AGENT_STATE_PENDING},
	}
}

// sandboxOf returns the ID of the sandbox with the ID ref or, if its delete was not requested, the name ref. The store refuses a
// deleted sandbox.
func (s *Server) sandboxOf(ctx context.Context, ref string) (string, error) {
	sb, err := s.deps.Store.Sandbox(ctx, ref)
	if err == nil && !toBeDeleted(sb) || err != nil && !errdefs.IsNotFound(err) {
		return sb.ID, err
	}
	all, listErr := s.deps.Store.List(ctx, store.Filter{})
	if listErr != nil {
		return "", listErr
	}
	for _, one := range all {
		if one.Name == ref && !toBeDeleted(one) {
			return one.ID, nil
		}
	}
	return sb.ID, err
}

func toBeDeleted(sb store.Sandbox) bool {
	return sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE
}

// agentOf returns the agent with the ID ref or, if there is none, the name ref.
func (s *Server) agentOf(ctx context.Context, ref string) (store.Agent, error) {
	a, err := s.deps.Store.Agent(ctx, ref)
	if errdefs.IsNotFound(err) {
		return s.deps.Store.AgentByName(ctx, ref)
	}
	return a, err
}

// GetAgent implements agbox.v1.AgentService.
func (s *Server) GetAgent(ctx context.Context, req *agboxv1.GetAgentRequest) (*agboxv1.GetAgentResponse, error) {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return nil, err
	}
	a, err := s.agentOf(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	h := s.agentHandle(a, true)
	if h.Queue, err = s.agentQueue(ctx, a); err != nil {
		return nil, err
	}
	return &agboxv1.GetAgentResponse{Agent: h}, nil
}

// ListAgents implements agbox.v1.AgentService. Handles have no spec, like those of sandboxes.
func (s *Server) ListAgents(_ context.Context, req *agboxv1.ListAgentsRequest) (*agboxv1.ListAgentsResponse, error) {
	all := s.deps.Store.Agents(store.AgentFilter{SandboxID: req.GetSandboxId(), Labels: req.GetLabelSelector()})
	resp := &agboxv1.ListAgentsResponse{Agents: make([]*agboxv1.AgentHandle, len(all))}
	for i, a := range all {
		resp.Agents[i] = s.agentHandle(a, false)
	}
	return resp, nil
}

// StartAgent implements agbox.v1.AgentService.
func (s *Server) StartAgent(ctx context.Context, req *agboxv1.StartAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.deps.Store.RequestAgentRun)
}

// StopAgent implements agbox.v1.AgentService.
func (s *Server) StopAgent(ctx context.Context, req *agboxv1.StopAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.deps.Store.RequestAgentStop)
}

// DeleteAgent implements agbox.v1.AgentService.
func (s *Server) DeleteAgent(ctx context.Context, req *agboxv1.DeleteAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.deps.Store.RequestAgentDelete)
}

// MoveAgent implements agbox.v1.AgentService.
func (s *Server) MoveAgent(ctx context.Context, req *agboxv1.MoveAgentRequest) (*agboxv1.AcceptedResponse, error) {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return nil, err
	}
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return nil, err
	}
	sandboxID, err := s.sandboxOf(ctx, req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return accepted(s.deps.Store.RequestMove(ctx, req.GetAgentId(), sandboxID))
}

// InterruptAgent implements agbox.v1.AgentService.
func (s *Server) InterruptAgent(ctx context.Context, req *agboxv1.InterruptAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.deps.Store.RequestInterrupt)
}

// PromptAgent implements agbox.v1.AgentService.
func (s *Server) PromptAgent(ctx context.Context, req *agboxv1.PromptAgentRequest) (*agboxv1.PromptAgentResponse, error) {
	if err := validate.PromptAgent(req).Err(); err != nil {
		return nil, err
	}
	id := cmp.Or(req.GetPromptId(), uuid.NewString())
	q, err := s.deps.Store.QueuePrompt(ctx, req.GetAgentId(), id, req.GetText())
	return &agboxv1.PromptAgentResponse{PromptId: q.PromptID, Ahead: uint32(q.Ahead), LastEventSequence: q.Sequence}, err
}

// RedeliverPrompt implements agbox.v1.AgentService.
func (s *Server) RedeliverPrompt(ctx context.Context, req *agboxv1.RedeliverPromptRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOfPrompt(ctx, req.GetAgentId(), req.GetPromptId(), s.deps.Store.RequestRedelivery)
}

// WithdrawPrompt implements agbox.v1.AgentService.
func (s *Server) WithdrawPrompt(ctx context.Context, req *agboxv1.WithdrawPromptRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOfPrompt(ctx, req.GetAgentId(), req.GetPromptId(), s.deps.Store.WithdrawPrompt)
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

// ListAgentTransitions implements agbox.v1.AgentService.
func (s *Server) ListAgentTransitions(ctx context.Context, req *agboxv1.ListAgentTransitionsRequest) (*agboxv1.ListAgentTransitionsResponse, error) {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return nil, err
	}
	limit := cmp.Or(min(int(req.GetLimit()), batch), batch)
	list, err := s.deps.Store.Transitions(ctx, req.GetAgentId(), req.GetAfter(), limit)
	return &agboxv1.ListAgentTransitionsResponse{Transitions: list}, err
}
