package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

type stats struct {
	read func(ctx context.Context, sandboxIDs []string) ([]*agboxv1.SandboxStats, error)
	now  func() time.Time
}

// GetStats implements agbox.v1.SandboxService.
func (s *stats) GetStats(ctx context.Context, req *agboxv1.GetStatsRequest) (*agboxv1.GetStatsResponse, error) {
	all, err := s.read(ctx, req.GetSandboxIds())
	return &agboxv1.GetStatsResponse{Sandboxes: all, ReadAt: timestamppb.New(s.now())}, err
}
