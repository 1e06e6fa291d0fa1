package apiserver

import (
	"context"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// ConfirmEngine implements agbox.v1.AdminService.
func (s *Server) ConfirmEngine(ctx context.Context, _ *agboxv1.ConfirmEngineRequest) (*agboxv1.ConfirmEngineResponse, error) {
	if s.deps.ConfirmEngine == nil {
		return nil, errdefs.ErrUnavailable
	}
	id, err := s.deps.ConfirmEngine(ctx)
	if err != nil {
		return nil, err
	}
	return &agboxv1.ConfirmEngineResponse{EngineId: id}, nil
}
