package server

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// ListVolumes implements agbox.v1.SandboxService.
func (s *Server) ListVolumes(ctx context.Context, req *agboxv1.ListVolumesRequest) (*agboxv1.ListVolumesResponse, error) {
	all, err := s.deps.Volumes(ctx, req.GetSandboxName())
	return &agboxv1.ListVolumesResponse{Volumes: all}, err
}

// RemoveVolume implements agbox.v1.SandboxService.
func (s *Server) RemoveVolume(ctx context.Context, req *agboxv1.RemoveVolumeRequest) (*agboxv1.RemoveVolumeResponse, error) {
	if err := validate.RemoveVolume(req).Err(); err != nil {
		return nil, err
	}
	return &agboxv1.RemoveVolumeResponse{}, s.deps.RemoveVolume(ctx, req.GetSandboxName(), req.GetVolumeName())
}
