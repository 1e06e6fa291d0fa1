package server

import (
	"context"


	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// CollectGarbage implements agbox.v1.AdminService.
func (s *Server) CollectGarbage(ctx context.Context, req *agboxv1.CollectGarbageRequest) (*agboxv1.CollectGarbageResponse, error) {
	items, err := s.deps.CollectGarbage(ctx, req)
	if err != nil {
		return nil, err
	}
	return &agboxv1.CollectGarbageResponse{Items: items}, nil
}
