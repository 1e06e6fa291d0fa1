package server

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

type netActivity struct {
	read func(ctx context.Context, sandboxID string) (*agboxv1.GetNetworkActivityResponse, error)
}

// GetNetworkActivity implements agbox.v1.SandboxService.
func (s *netActivity) GetNetworkActivity(ctx context.Context, req *agboxv1.GetNetworkActivityRequest) (*agboxv1.GetNetworkActivityResponse, error) {
	return s.read(ctx, req.GetSandboxId())
}
