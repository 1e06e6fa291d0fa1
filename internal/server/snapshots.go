package server

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

type snapshots struct {
	create func(ctx context.Context, sandboxID, id string) (*agboxv1.Snapshot, error)
	list   func(ctx context.Context, sandboxID, owner string) ([]*agboxv1.Snapshot, error)
	remove func(ctx context.Context, id string) error
}

// CreateSnapshot implements agbox.v1.SandboxService.
func (s *snapshots) CreateSnapshot(ctx context.Context, req *agboxv1.CreateSnapshotRequest) (*agboxv1.CreateSnapshotResponse, error) {
	if err := validate.CreateSnapshot(req).Err(); err != nil {
		return nil, err
	}
	made, err := s.create(ctx, req.GetSandboxId(), req.GetSnapshotId())
	return &agboxv1.CreateSnapshotResponse{Snapshot: made}, err
}

// ListSnapshots implements agbox.v1.SandboxService.
func (s *snapshots) ListSnapshots(ctx context.Context, req *agboxv1.ListSnapshotsRequest) (*agboxv1.ListSnapshotsResponse, error) {
	all, err := s.list(ctx, req.GetSandboxId(), req.GetGatewayOwner())
	return &agboxv1.ListSnapshotsResponse{Snapshots: all}, err
}

// RemoveSnapshot implements agbox.v1.SandboxService.
func (s *snapshots) RemoveSnapshot(ctx context.Context, req *agboxv1.RemoveSnapshotRequest) (*agboxv1.RemoveSnapshotResponse, error) {
	if err := validate.RemoveSnapshot(req).Err(); err != nil {
		return nil, err
	}
	return &agboxv1.RemoveSnapshotResponse{}, s.remove(ctx, req.GetSnapshotId())
}
