package apiserver

import (
	"context"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Explain implements agbox.v1.AdminService.
func (s *Server) Explain(ctx context.Context, req *agboxv1.ExplainRequest) (*agboxv1.ExplainResponse, error) {
	if err := requireSandboxID(req); err != nil {
		return nil, err
	}
	if s.deps.Explain == nil {
		return nil, errdefs.ErrUnavailable
	}
	return s.deps.Explain(ctx, req.GetSandboxId())
}
