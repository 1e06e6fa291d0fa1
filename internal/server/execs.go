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

type execStore interface {
	CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest, by store.Caller) (store.Exec, error)
	RequestCancel(ctx context.Context, execID string) (changed bool, err error)
	Exec(ctx context.Context, execID string) (store.Exec, error)
	ActiveExecs(sandboxID string) []string
	Execs(ctx context.Context, f store.ExecFilter) (store.ExecPage, error)
}

type execs struct {
	store        execStore
	callerLimits func() CallerLimits
	logs         func(sandboxID, execID string) (stdout, stderr string)
}

// CreateExec implements agbox.v1.SandboxService.
func (s *execs) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	if err := validate.Exec(req).Err(); err != nil {
		return nil, err
	}
	req = proto.CloneOf(req)
	req.ExecId = cmp.Or(req.ExecId, uuid.NewString())
	e, err := s.store.CreateExec(ctx, req, callerIn(ctx, s.callerLimits().Execs))
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.CreateExecResponse{ExecId: e.ID}
	resp.StdoutLogPath, resp.StderrLogPath = s.logs(e.SandboxID, e.ID)
	return resp, nil
}

// CancelExec implements agbox.v1.SandboxService.
func (s *execs) CancelExec(ctx context.Context, req *agboxv1.CancelExecRequest) (*agboxv1.AcceptedResponse, error) {
	return requestOf(ctx, "exec_id", req.GetExecId(), s.store.RequestCancel)
}

// GetExec implements agbox.v1.SandboxService.
func (s *execs) GetExec(ctx context.Context, req *agboxv1.GetExecRequest) (*agboxv1.GetExecResponse, error) {
	if err := required("exec_id", req.GetExecId()); err != nil {
		return nil, err
	}
	e, err := s.store.Exec(ctx, req.GetExecId())
	if err != nil {
		return nil, err
	}
	return &agboxv1.GetExecResponse{Exec: s.execStatus(e)}, nil
}

// ListActiveExecs implements agbox.v1.SandboxService. An unknown sandbox has none.
func (s *execs) ListActiveExecs(ctx context.Context, req *agboxv1.ListActiveExecsRequest) (*agboxv1.ListActiveExecsResponse, error) {
	resp := &agboxv1.ListActiveExecsResponse{}
	if req.SandboxId != nil && req.GetSandboxId() == "" {
		return resp, nil // present but empty names no sandbox; for the store it would mean all
	}
	for _, id := range s.store.ActiveExecs(req.GetSandboxId()) {
		e, err := s.store.Exec(ctx, id)
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
func (s *execs) ListExecs(ctx context.Context, req *agboxv1.ListExecsRequest) (*agboxv1.ListExecsResponse, error) {
	page, err := s.store.Execs(ctx, store.ExecFilter{SandboxID: req.GetSandboxId(), Prefix: req.GetExecIdPrefix(), After: req.GetPageToken()})
	if err != nil {
		return nil, err
	}
	resp := &agboxv1.ListExecsResponse{NextPageToken: page.Next}
	for _, e := range page.Execs {
		resp.Execs = append(resp.Execs, s.execStatus(e))
	}
	return resp, nil
}

func (s *execs) execStatus(e store.Exec) *agboxv1.ExecStatus {
	out := &agboxv1.ExecStatus{
		ExecId: e.ID, SandboxId: e.SandboxID, State: agboxv1.ExecState_EXEC_STATE_RUNNING,
		Command: e.Request.GetCommand(), Cwd: e.Request.GetCwd(), EnvOverrides: e.Request.GetEnvOverrides(),
		User: e.Request.GetUser(), Timeout: e.Request.GetTimeout(), Stdin: e.Request.GetStdin(), Terminal: e.Request.GetTerminal() != nil,
		LastEventSequence: e.Anchor, CreatedAt: nanoseconds(e.Desired.GetCreatedAt()),
	}
	out.StdoutLogPath, out.StderrLogPath = s.logs(e.SandboxID, e.ID)
	if e.End == nil {
		out.StdinDeadlineAt = nanoseconds(e.Desired.GetStdinDeadline())
		return out
	}
	out.State, out.ExitCode, out.OomKilled = agboxv1.ExecState(e.End.GetState()), e.End.GetExitCode(), e.End.GetOomKilled()
	out.OomKills = e.End.GetOomKills()
	out.ErrorCode, out.Error = e.End.GetErrorCode(), e.End.GetErrorMessage()
	out.StdoutDroppedBytes, out.StderrDroppedBytes = e.End.GetStdoutDroppedBytes(), e.End.GetStderrDroppedBytes()
	out.StartedAt, out.EndedAt = nanoseconds(e.End.GetStartedAt()), nanoseconds(e.End.GetEndedAt())
	return out
}
