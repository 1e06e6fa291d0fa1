package server

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/store"
)

// Drainer ends the work of the daemon in good order.
type Drainer interface {
	// Drain starts a drain and returns. Errors: Refusal DRAIN_INVALID_STATE during another drain.
	Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error)
	// Undrain ends it. changed is false if there was none.
	Undrain(ctx context.Context) (changed bool, err error)
	// DrainStatus must not block.
	DrainStatus() *agboxv1.DrainStatus
}

type admin struct {
	*lifecycle
	agents         agentFinder
	confirmEngine  func(ctx context.Context) (*agboxv1.ConfirmEngineResponse, error)
	collectGarbage func(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error)
	explain        func(ctx context.Context, sandboxID string) (*agboxv1.ExplainResponse, error)
	explainAgent   func(ctx context.Context, agentID string) (*agboxv1.ExplainResponse, error)
	doctor         func() []*agboxv1.DoctorCheck
	attackTargets  func(ctx context.Context, sandboxID string) ([]string, error)
	drainer        Drainer
	drainWait      func() time.Duration
	backup         func(ctx context.Context, w io.Writer, withLogs bool) error
	backups        atomic.Int32 // in progress
}

// ConfirmEngine implements agbox.v1.AdminService. A server that stops does not wait for it.
func (s *admin) ConfirmEngine(ctx context.Context, _ *agboxv1.ConfirmEngineRequest) (resp *agboxv1.ConfirmEngineResponse, err error) {
	err = s.whileServing(ctx, func(ctx context.Context) error {
		resp, err = s.confirmEngine(ctx)
		return err
	})
	return resp, err
}

// CollectGarbage implements agbox.v1.AdminService.
func (s *admin) CollectGarbage(ctx context.Context, req *agboxv1.CollectGarbageRequest) (*agboxv1.CollectGarbageResponse, error) {
	items, err := s.collectGarbage(ctx, req)
	return &agboxv1.CollectGarbageResponse{Items: items}, err
}

// Explain implements agbox.v1.AdminService.
func (s *admin) Explain(ctx context.Context, req *agboxv1.ExplainRequest) (*agboxv1.ExplainResponse, error) {
	switch {
	case (req.GetSandboxId() == "") == (req.GetAgentId() == ""):
		return nil, invalid("sandbox_id", "exactly one of sandbox_id and agent_id is required")
	case req.GetSandboxId() != "":
		return s.explain(ctx, req.GetSandboxId())
	}
	a, err := findAgent(ctx, s.agents, req.GetAgentId())
	if err != nil && !errdefs.IsDataLoss(err) { // damaged records are explained too
		return nil, err
	}
	return s.explainAgent(ctx, a.ID)
}

// Doctor implements agbox.v1.AdminService.
func (s *admin) Doctor(context.Context, *agboxv1.DoctorRequest) (*agboxv1.DoctorResponse, error) {
	return &agboxv1.DoctorResponse{Checks: s.doctor()}, nil
}

// ListAttackTargets implements agbox.v1.AdminService.
func (s *admin) ListAttackTargets(ctx context.Context, req *agboxv1.ListAttackTargetsRequest) (*agboxv1.ListAttackTargetsResponse, error) {
	if req.GetSandboxId() == "" {
		return nil, invalid("sandbox_id", "sandbox_id is required")
	}
	targets, err := s.attackTargets(ctx, req.GetSandboxId())
	return &agboxv1.ListAttackTargetsResponse{Targets: targets}, err
}

// Drain implements agbox.v1.AdminService. It does not wait for the end of the drain.
func (s *admin) Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainResponse, error) {
	if err := validate.Drain(req).Err(); err != nil {
		return nil, err
	}
	wait := s.drainWait()
	if req.GetWait() != nil {
		wait = req.GetWait().AsDuration()
	}
	status, err := s.drainer.Drain(ctx, store.DrainOptions{
		Mode: cmp.Or(req.GetMode(), agboxv1.DrainMode_DRAIN_MODE_PARK), Wait: wait, Reason: cmp.Or(req.GetReason(), "drain_requested"),
		SaveEach: req.GetSaveEach().AsDuration(), SaveAll: req.GetSaveAll().AsDuration(), Exit: req.GetExit(),
	})
	return &agboxv1.DrainResponse{Status: status}, err
}

// Undrain implements agbox.v1.AdminService.
func (s *admin) Undrain(ctx context.Context, _ *agboxv1.UndrainRequest) (*agboxv1.UndrainResponse, error) {
	changed, err := s.drainer.Undrain(ctx)
	return &agboxv1.UndrainResponse{Changed: changed}, err
}

// GetDrainStatus implements agbox.v1.AdminService.
func (s *admin) GetDrainStatus(context.Context, *agboxv1.GetDrainStatusRequest) (*agboxv1.GetDrainStatusResponse, error) {
	return &agboxv1.GetDrainStatusResponse{Status: s.drainer.DrainStatus()}, nil
}

const (
	// backupChunk is far below the message size limit of any client.
	backupChunk = 256 << 10
	// maxBackups bounds the copies of the database that clients who do not read keep on the disk.
	maxBackups = 4
)

// Backup implements agbox.v1.AdminService.
func (s *admin) Backup(req *agboxv1.BackupRequest, stream grpc.ServerStreamingServer[agboxv1.BackupChunk]) error {
	if s.backups.Add(1) > maxBackups {
		s.backups.Add(-1)
		return &store.Refusal{Reason: "BACKUP_BUSY", Class: errdefs.ErrUnavailable, Message: "other backups are being made; try again when they are done"}
	}
	defer s.backups.Add(-1)
	return s.whileServing(stream.Context(), func(ctx context.Context) error {
		w := bufio.NewWriterSize(chunks{stream}, backupChunk)
		if err := s.backup(ctx, w, req.GetWithLogs()); err != nil {
			return err
		}
		return w.Flush()
	})
}

// chunks sends each write, of at most backupChunk bytes, as one message.
type chunks struct {
	stream grpc.ServerStreamingServer[agboxv1.BackupChunk]
}

var _ io.Writer = chunks{}

func (c chunks) Write(p []byte) (int, error) {
	sent := 0
	for part := range slices.Chunk(p, backupChunk) {
		if err := c.stream.Send(&agboxv1.BackupChunk{Data: part}); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}
