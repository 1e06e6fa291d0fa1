package server

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

// Reasons of events for requests of clients.
const (
	reasonStop   = "stop_requested"
	reasonPause  = "pause_requested"
	reasonDelete = "delete_requested"
)

type sandboxStore interface {
	InstanceID() string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	RequestStop(ctx context.Context, id, reason string) (changed bool, err error)
	RequestDelete(ctx context.Context, id, reason string) (changed bool, err error)
	RequestDeleteKeepingAgents(ctx context.Context, id, reason string) (changed bool, err error)
	RequestDeleteWithVolumes(ctx context.Context, id, reason string, keepAgents bool) (changed bool, err error)
	RequestDeleteMatching(ctx context.Context, selector map[string]string, reason string) (ids []string, err error)
}

// sandboxes handles the calls that read, stop and delete sandboxes.
type sandboxes struct {
	*handles
	store    sandboxStore
	engine   func() string
	gateways func() map[string]string
	version  string
}

// Ping implements agbox.v1.SandboxService.
func (s *sandboxes) Ping(context.Context, *agboxv1.PingRequest) (*agboxv1.PingResponse, error) {
	return &agboxv1.PingResponse{
		Version: s.version, Daemon: "agboxd", EngineProblem: s.engine(), InstanceId: s.store.InstanceID(), Gateways: s.gateways(),
	}, nil
}

// GetSandbox implements agbox.v1.SandboxService.
func (s *sandboxes) GetSandbox(ctx context.Context, req *agboxv1.GetSandboxRequest) (*agboxv1.GetSandboxResponse, error) {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return nil, err
	}
	sb, err := s.store.Sandbox(ctx, req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetSandboxResponse{Sandbox: s.handle(sb, true)}, nil
}

// ListSandboxes implements agbox.v1.SandboxService. Handles have no spec, or a part of it, because many large specs would exceed the
// message size that clients accept.
func (s *sandboxes) ListSandboxes(ctx context.Context, req *agboxv1.ListSandboxesRequest) (*agboxv1.ListSandboxesResponse, error) {
	filter := store.Filter{
		IncludeDeleted: req.GetIncludeDeleted(), Labels: req.GetLabelSelector(), GatewayOwner: req.GetGatewayOwner(),
		GatewayTemplate: req.GetGatewayTemplate(), GatewayMetadata: req.GetGatewayMetadata(), OldestFirst: req.GetOldestFirst(), Limit: int(req.GetLimit()),
	}
	if at := req.GetAfterCreatedAt(); at != nil {
		filter.After = &store.Position{CreatedAt: at.AsTime(), ID: req.GetAfterSandboxId()}
	}
	all, err := s.store.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.ListSandboxesResponse{Sandboxes: make([]*agboxv1.SandboxHandle, len(all))}
	for i, sb := range all {
		resp.Sandboxes[i] = s.handle(sb, false)
		if req.GetGatewayOwner() != "" {
			resp.Sandboxes[i].Spec = gatewayPart(sb.Spec)
		}
	}
	return resp, nil
}

// StopSandbox implements agbox.v1.SandboxService.
func (s *sandboxes) StopSandbox(ctx context.Context, req *agboxv1.StopSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "sandbox_id", req.GetSandboxId(), because(s.store.RequestStop, reasonStop))
}

// DeleteSandbox implements agbox.v1.SandboxService.
func (s *sandboxes) DeleteSandbox(ctx context.Context, req *agboxv1.DeleteSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	request := s.store.RequestDelete
	switch {
	case req.GetVolumes():
		request = func(ctx context.Context, id, reason string) (bool, error) {
			return s.store.RequestDeleteWithVolumes(ctx, id, reason, req.GetKeepAgents())
		}
	case req.GetKeepAgents():
		request = s.store.RequestDeleteKeepingAgents
	}
	return requestOf(ctx, "sandbox_id", req.GetSandboxId(), because(request, reasonDelete))
}

// DeleteSandboxes implements agbox.v1.SandboxService.
func (s *sandboxes) DeleteSandboxes(ctx context.Context, req *agboxv1.DeleteSandboxesRequest) (*agboxv1.DeleteSandboxesResponse, error) {
	if err := validate.LabelSelector(req.GetLabelSelector()).Err(); err != nil {
		return nil, err
	}
	ids, err := s.store.RequestDeleteMatching(ctx, req.GetLabelSelector(), reasonDelete)
	return &agboxv1.DeleteSandboxesResponse{DeletedSandboxIds: ids, DeletedCount: uint32(len(ids))}, err
}

// required refuses a call without the ID of its object.
func required(field, id string) error {
	if id == "" {
		return invalid(field, field+" is required")
	}
	return nil
}

// requestOf asks the store for a change of the object whose ID is in field.
func requestOf(ctx context.Context, field, id string, method func(context.Context, string) (bool, error)) (*agboxv1.AcceptedResponse, error) {
	if err := required(field, id); err != nil {
		return nil, err
	}
	return accepted(method(ctx, id))
}

// accepted turns the store's answer into the API's. Whether it changed anything makes no difference to the client.
func accepted(_ bool, err error) (*agboxv1.AcceptedResponse, error) {
	return &agboxv1.AcceptedResponse{Accepted: true}, err
}

// because binds the reason of a request.
func because(method func(ctx context.Context, id, reason string) (bool, error), reason string) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, id string) (bool, error) { return method(ctx, id, reason) }
}
