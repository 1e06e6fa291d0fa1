package server

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

type volumes struct {
	list   func(ctx context.Context, sandboxName string) ([]*agboxv1.Volume, error)
	remove func(ctx context.Context, sandboxName, volume string) error
}

// ListVolumes implements agbox.v1.SandboxService.
func (s *volumes) ListVolumes(ctx context.Context, req *agboxv1.ListVolumesRequest) (*agboxv1.ListVolumesResponse, error) {
	all, err := s.list(ctx, req.GetSandboxName())
	return &agboxv1.ListVolumesResponse{Volumes: all}, err
}

// RemoveVolume implements agbox.v1.SandboxService.
func (s *volumes) RemoveVolume(ctx context.Context, req *agboxv1.RemoveVolumeRequest) (*agboxv1.RemoveVolumeResponse, error) {
	if err := validate.RemoveVolume(req).Err(); err != nil {
		return nil, err
	}
	return &agboxv1.RemoveVolumeResponse{}, s.remove(ctx, req.GetSandboxName(), req.GetVolumeName())
}
