package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

type serviceLogs struct {
	store interface {
		Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	}
	update func(ctx context.Context, sandboxID, service string) (path, problem string, err error)
}

// GetServiceLog implements agbox.v1.SandboxService.
func (s *serviceLogs) GetServiceLog(ctx context.Context, req *agboxv1.GetServiceLogRequest) (*agboxv1.GetServiceLogResponse, error) {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return nil, err
	}
	sb, err := s.store.Sandbox(ctx, req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, svc := range services(sb) {
		names = append(names, svc.GetName())
	}
	switch name := req.GetServiceName(); {
	case slices.Contains(names, name):
	case len(names) == 0:
		return nil, invalid("service_name", fmt.Sprintf("sandbox %s has no services", sb.ID))
	default:
		return nil, invalid("service_name", fmt.Sprintf("sandbox %s has no service %q; its services are %s", sb.ID, name, strings.Join(names, ", ")))
	}
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
		return nil, &store.Refusal{
			Reason: "SANDBOX_INVALID_STATE", Metadata: map[string]string{"sandbox_id": sb.ID},
			Message: fmt.Sprintf("the logs of sandbox %s were removed with it", sb.ID), Class: errdefs.ErrFailedPrecondition,
		}
	}
	path, problem, err := s.update(ctx, sb.ID, req.GetServiceName())
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetServiceLogResponse{LogPath: path, Problem: problem}, nil
}
