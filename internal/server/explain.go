package server

import (
	"context"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Explain implements agbox.v1.AdminService.
func (s *Server) Explain(ctx context.Context, req *agboxv1.ExplainRequest) (*agboxv1.ExplainResponse, error) {
	switch {
	case (req.GetSandboxId() == "") == (req.GetAgentId() == ""):
		return nil, invalid("sandbox_id", "exactly one of sandbox_id and agent_id is required")
	case req.GetAgentId() != "":
		return s.explainAgent(ctx, req.GetAgentId())
	}
	return s.deps.Explain(ctx, req.GetSandboxId())
}

// explainAgent prefers an ID to the same name, like GetAgent.
func (s *Server) explainAgent(ctx context.Context, ref string) (*agboxv1.ExplainResponse, error) {
	a, err := s.deps.Store.Agent(ctx, ref)
	if errdefs.IsNotFound(err) {
		a, err = s.deps.Store.AgentByName(ctx, ref)
	}
	if err != nil && !errdefs.IsDataLoss(err) { // damaged records are explained too
		return nil, err
	}
	return s.deps.ExplainAgent(ctx, a.ID)
}
