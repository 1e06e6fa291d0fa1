package server

import (
	"cmp"
	"context"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

// CreateExec implements agbox.v1.SandboxService.
func (s *Server) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	if err := validate.Exec(req).Err(); err != nil {
		return nil, err
	}
	req = proto.CloneOf(req)
	req.ExecId = cmp.Or(req.ExecId, uuid.NewString())
	e, err := s.deps.Store.CreateExec(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.CreateExecResponse{ExecId: e.ID}
	resp.StdoutLogPath, resp.StderrLogPath = s.deps.Logs(e.SandboxID, e.ID)
	return resp, nil
}

// CancelExec implements agbox.v1.SandboxService.
func (s *Server) CancelExec(ctx context.Context, req *agboxv1.CancelExecRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "exec_id", req.GetExecId(), s.deps.Store.RequestCancel)
}

// GetExec implements agbox.v1.SandboxService.
func (s *Server) GetExec(ctx context.Context, req *agboxv1.GetExecRequest) (*agboxv1.GetExecResponse, error) {
	if err := required("exec_id", req.GetExecId()); err != nil {
		return nil, err
	}
	e, err := s.deps.Store.Exec(ctx, req.GetExecId())
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetExecResponse{Exec: s.execStatus(e)}, nil
}

// ListActiveExecs implements agbox.v1.SandboxService. An unknown sandbox has none.
func (s *Server) ListActiveExecs(ctx context.Context, req *agboxv1.ListActiveExecsRequest) (*agboxv1.ListActiveExecsResponse, error) {
	resp := &agboxv1.ListActiveExecsResponse{}
	if req.SandboxId != nil && req.GetSandboxId() == "" {
		return resp, nil // present but empty names no sandbox; for the store it would mean all
	}
	for _, id := range s.deps.Store.ActiveExecs(req.GetSandboxId()) {
		e, err := s.deps.Store.Exec(ctx, id)
		switch {
		case errdefs.IsNotFound(err): // purged since
		case err != nil:
			return nil, err
		case e.End == nil: // otherwise it ended since
			resp.Execs = append(resp.Execs, s.execStatus(e))
		}
	}
	return resp, nil
}

// ListExecs implements agbox.v1.SandboxService.
func (s *Server) ListExecs(ctx context.Context, req *agboxv1.ListExecsRequest) (*agboxv1.ListExecsResponse, error) {
	page, err := s.deps.Store.Execs(ctx, store.ExecFilter{SandboxID: req.GetSandboxId(), Prefix: req.GetExecIdPrefix(), After: req.GetPageToken()})
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.ListExecsResponse{NextPageToken: page.Next}
	for _, e := range page.Execs {
		resp.Execs = append(resp.Execs, s.execStatus(e))
	}
	return resp, nil
}
