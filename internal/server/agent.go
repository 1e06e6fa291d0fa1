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

type agentStore interface {
	agentFinder
	Agents(f store.AgentFilter) []store.Agent
	CheckCreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) error
	CreateAgent(ctx context.Context, id, name string, spec *agboxv1.AgentSpec) (store.Agent, error)
	RequestAgentRun(ctx context.Context, id string) (changed bool, err error)
	RequestAgentStop(ctx context.Context, id string) (changed bool, err error)
	RequestAgentDelete(ctx context.Context, id string) (changed bool, err error)
	RequestMove(ctx context.Context, id, sandboxID string) (changed bool, err error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
}

// agents handles the calls that create, read, start, stop, move and delete agents.
type agents struct {
	*agentHandles
	store agentStore
}

// CreateAgent implements agbox.v1.AgentService.
func (s *agents) CreateAgent(ctx context.Context, req *agboxv1.CreateAgentRequest) (*agboxv1.CreateAgentResponse, error) {
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
		err = s.store.CheckCreateAgent(ctx, id, req.GetName(), spec)
	} else {
		a, err = s.store.CreateAgent(ctx, id, req.GetName(), spec)
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
func (s *agents) sandboxOf(ctx context.Context, ref string) (string, error) {
	sb, err := s.store.Sandbox(ctx, ref)
	if err == nil && !toBeDeleted(sb) || err != nil && !errdefs.IsNotFound(err) {
		return sb.ID, err
	}
	all, listErr := s.store.List(ctx, store.Filter{})
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

type agentFinder interface {
	Agent(ctx context.Context, id string) (store.Agent, error)
	AgentByName(ctx context.Context, name string) (store.Agent, error)
}

// findAgent returns the agent with the ID ref or, if there is none, the name ref.
func findAgent(ctx context.Context, s agentFinder, ref string) (store.Agent, error) {
	a, err := s.Agent(ctx, ref)
	if errdefs.IsNotFound(err) {
		return s.AgentByName(ctx, ref)
	}
	return a, err
}

// GetAgent implements agbox.v1.AgentService.
func (s *agents) GetAgent(ctx context.Context, req *agboxv1.GetAgentRequest) (*agboxv1.GetAgentResponse, error) {
	if err := required("agent_id", req.GetAgentId()); err != nil {
		return nil, err
	}
	a, err := findAgent(ctx, s.store, req.GetAgentId())
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
func (s *agents) ListAgents(_ context.Context, req *agboxv1.ListAgentsRequest) (*agboxv1.ListAgentsResponse, error) {
	all := s.store.Agents(store.AgentFilter{SandboxID: req.GetSandboxId(), Labels: req.GetLabelSelector()})
	resp := &agboxv1.ListAgentsResponse{Agents: make([]*agboxv1.AgentHandle, len(all))}
	for i, a := range all {
		resp.Agents[i] = s.agentHandle(a, false)
	}
	return resp, nil
}

// StartAgent implements agbox.v1.AgentService.
func (s *agents) StartAgent(ctx context.Context, req *agboxv1.StartAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.store.RequestAgentRun)
}

// StopAgent implements agbox.v1.AgentService.
func (s *agents) StopAgent(ctx context.Context, req *agboxv1.StopAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.store.RequestAgentStop)
}

// DeleteAgent implements agbox.v1.AgentService.
func (s *agents) DeleteAgent(ctx context.Context, req *agboxv1.DeleteAgentRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "agent_id", req.GetAgentId(), s.store.RequestAgentDelete)
}

// MoveAgent implements agbox.v1.AgentService.
func (s *agents) MoveAgent(ctx context.Context, req *agboxv1.MoveAgentRequest) (*agboxv1.AcceptedResponse, error) {
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
	return accepted(s.store.RequestMove(ctx, req.GetAgentId(), sandboxID))
}
