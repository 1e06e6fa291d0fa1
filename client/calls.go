package client

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Ping returns the daemon's version and whether the engine answers.
func (c *Client) Ping(ctx context.Context) (*agboxv1.PingResponse, error) {
	return read(ctx, c, c.sandboxes.Ping, &agboxv1.PingRequest{})
}

// CreateSandbox records a sandbox; it converges afterwards, see WaitSandbox. With the caller's own sandbox_id a
// create whose answer was lost can be repeated: it then fails with SANDBOX_ID_ALREADY_EXISTS if the first one was accepted.
func (c *Client) CreateSandbox(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.SandboxHandle, error) {
	resp, err := call(ctx, c, c.sandboxes.CreateSandbox, req)
	return resp.GetSandbox(), err
}

// GetSandbox reads one sandbox, also a deleted one while its history is retained.
func (c *Client) GetSandbox(ctx context.Context, sandboxID string) (*agboxv1.SandboxHandle, error) {
	resp, err := read(ctx, c, c.sandboxes.GetSandbox, &agboxv1.GetSandboxRequest{SandboxId: sandboxID})
	return resp.GetSandbox(), err
}

// ListSandboxes reads sandboxes, newest first, without their specs. An empty selector selects all.
func (c *Client) ListSandboxes(ctx context.Context, includeDeleted bool, selector map[string]string) ([]*agboxv1.SandboxHandle, error) {
	resp, err := read(ctx, c, c.sandboxes.ListSandboxes, &agboxv1.ListSandboxesRequest{IncludeDeleted: includeDeleted, LabelSelector: selector})
	return resp.GetSandboxes(), err
}

// RecoverSandbox is ResumeSandbox, and also restarts a FAILED sandbox whose primary container exists: the daemon recreates a missing
// network, but no container. Errors besides: FailedPrecondition that names the missing container. An older daemon only
// resumes.
func (c *Client) RecoverSandbox(ctx context.Context, sandboxID string) error {
	return request(ctx, c, c.sandboxes.ResumeSandbox, &agboxv1.ResumeSandboxRequest{SandboxId: sandboxID, Recover: true})
}

// ResumeSandbox requests that a STOPPED or PAUSED sandbox runs again, and cancels an unfinished pause.
func (c *Client) ResumeSandbox(ctx context.Context, sandboxID string) error {
	return request(ctx, c, c.sandboxes.ResumeSandbox, &agboxv1.ResumeSandboxRequest{SandboxId: sandboxID})
}

// StopSandbox requests that a READY or PAUSED sandbox stops.
func (c *Client) StopSandbox(ctx context.Context, sandboxID string) error {
	return request(ctx, c, c.sandboxes.StopSandbox, &agboxv1.StopSandboxRequest{SandboxId: sandboxID})
}

// UpdateSandbox changes the spec of a live sandbox in place to create_spec (merged over config_yaml), and returns the paths of the
// changed fields. With dry_run nothing is changed. If a field can't change in place, nothing is changed; ImmutableFields
// returns the paths of such fields. Idempotent.
func (c *Client) UpdateSandbox(ctx context.Context, req *agboxv1.UpdateSandboxRequest) (*agboxv1.UpdateSandboxResponse, error) {
	return call(ctx, c, c.sandboxes.UpdateSandbox, req)
}

// DeleteSandbox requests the removal of a sandbox with its files, logs and agents, except agents that are moving to another
// sandbox. Idempotent.
func (c *Client) DeleteSandbox(ctx context.Context, sandboxID string) error {
	return request(ctx, c, c.sandboxes.DeleteSandbox, &agboxv1.DeleteSandboxRequest{SandboxId: sandboxID})
}

// DeleteSandboxKeepingAgents is DeleteSandbox, but keeps the agents with their conversations: they wait for the next sandbox of the
// same name, or for MoveAgent. Only the first request to delete a sandbox decides whether its agents are kept.
func (c *Client) DeleteSandboxKeepingAgents(ctx context.Context, sandboxID string) error {
	return request(ctx, c, c.sandboxes.DeleteSandbox, &agboxv1.DeleteSandboxRequest{SandboxId: sandboxID, KeepAgents: true})
}

// DeleteSandboxWith is DeleteSandbox with more of its request. With volumes all volumes of the sandbox's name are removed, too.
func (c *Client) DeleteSandboxWith(ctx context.Context, req *agboxv1.DeleteSandboxRequest) error {
	return request(ctx, c, c.sandboxes.DeleteSandbox, req)
}

// Stats reads what these sandboxes use, or without IDs what all that run use.
func (c *Client) Stats(ctx context.Context, sandboxIDs ...string) (*agboxv1.GetStatsResponse, error) {
	return read(ctx, c, c.sandboxes.GetStats, &agboxv1.GetStatsRequest{SandboxIds: sandboxIDs})
}

// NetworkActivity reads what a sandbox reached and what its network policy denied it, in the last hour.
func (c *Client) NetworkActivity(ctx context.Context, sandboxID string) (*agboxv1.GetNetworkActivityResponse, error) {
	return read(ctx, c, c.sandboxes.GetNetworkActivity, &agboxv1.GetNetworkActivityRequest{SandboxId: sandboxID})
}

// ListVolumes reads the named volumes of a sandbox name, or of all names if it is empty.
func (c *Client) ListVolumes(ctx context.Context, sandboxName string) ([]*agboxv1.Volume, error) {
	resp, err := read(ctx, c, c.sandboxes.ListVolumes, &agboxv1.ListVolumesRequest{SandboxName: sandboxName})
	return resp.GetVolumes(), err
}

// RemoveVolume removes a volume with its content. An error that IsNotFound: there is none; IsFailedPrecondition: it is in use.
func (c *Client) RemoveVolume(ctx context.Context, sandboxName, volume string) error {
	_, err := call(ctx, c, c.sandboxes.RemoveVolume, &agboxv1.RemoveVolumeRequest{SandboxName: sandboxName, VolumeName: volume})
	return err
}

// snapshotPatience is longer than the daemon waits for the engine to make a snapshot.
const snapshotPatience = 15 * time.Minute

// CreateSnapshot makes a snapshot of a sandbox's files under an ID of the caller's choice, and returns once it is complete. It repeats the request
// while the daemon is at it or does not answer, which makes no second one. An error that IsNotFound: there is no such sandbox;
// IsFailedPrecondition: it is not ready, paused or stopped.
func (c *Client) CreateSnapshot(ctx context.Context, sandboxID, snapshotID string) (*agboxv1.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	for {
		resp, err := read(ctx, c, c.sandboxes.CreateSnapshot, &agboxv1.CreateSnapshotRequest{SandboxId: sandboxID, SnapshotId: snapshotID})
		if Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
			return resp.GetSnapshot(), err
		}
	}
}

// ListSnapshots reads snapshots, newest first: those of a sandbox, of a gateway's owner, or of all if these are empty.
func (c *Client) ListSnapshots(ctx context.Context, sandboxID, gatewayOwner string) ([]*agboxv1.Snapshot, error) {
	resp, err := read(ctx, c, c.sandboxes.ListSnapshots, &agboxv1.ListSnapshotsRequest{SandboxId: sandboxID, GatewayOwner: gatewayOwner})
	return resp.GetSnapshots(), err
}

// RemoveSnapshot removes a snapshot. An error that IsNotFound: there is none; IsFailedPrecondition: it is in use.
func (c *Client) RemoveSnapshot(ctx context.Context, snapshotID string) error {
	return request(ctx, c, c.sandboxes.RemoveSnapshot, &agboxv1.RemoveSnapshotRequest{SnapshotId: snapshotID})
}

// DeleteSandboxes requests the removal of all sandboxes with these labels and returns their IDs. The selector must not be
// empty.
func (c *Client) DeleteSandboxes(ctx context.Context, selector map[string]string) ([]string, error) {
	resp, err := call(ctx, c, c.sandboxes.DeleteSandboxes, &agboxv1.DeleteSandboxesRequest{LabelSelector: selector})
	return resp.GetDeletedSandboxIds(), err
}

// CreateExec records a command for a READY sandbox; a PAUSED one with auto_resume in its spec is resumed for it. With
// the caller's own exec_id it can be repeated safely, like CreateSandbox.
func (c *Client) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	return call(ctx, c, c.sandboxes.CreateExec, req)
}

// CancelExec requests the end of an exec; WaitExec waits for it.
func (c *Client) CancelExec(ctx context.Context, execID string) error {
	return request(ctx, c, c.sandboxes.CancelExec, &agboxv1.CancelExecRequest{ExecId: execID})
}

// GetExec reads one exec, running or ended.
func (c *Client) GetExec(ctx context.Context, execID string) (*agboxv1.ExecStatus, error) {
	resp, err := read(ctx, c, c.sandboxes.GetExec, &agboxv1.GetExecRequest{ExecId: execID})
	return resp.GetExec(), err
}

// ServiceLog makes the daemon copy what the engine has of a service's output, and returns the path of the file on this host. problem says why
// the file may lack the newest output. Errors besides: FailedPrecondition for a deleted sandbox.
func (c *Client) ServiceLog(ctx context.Context, sandboxID, service string) (path, problem string, err error) {
	resp, err := read(ctx, c, c.sandboxes.GetServiceLog, &agboxv1.GetServiceLogRequest{SandboxId: sandboxID, ServiceName: service})
	return resp.GetLogPath(), resp.GetProblem(), err
}

// ListActiveExecs reads the execs that have not ended: of one sandbox, or of all when sandboxID is empty.
func (c *Client) ListActiveExecs(ctx context.Context, sandboxID string) ([]*agboxv1.ExecStatus, error) {
	req := &agboxv1.ListActiveExecsRequest{}
	if sandboxID != "" {
		req.SandboxId = &sandboxID
	}
	resp, err := read(ctx, c, c.sandboxes.ListActiveExecs, req)
	return resp.GetExecs(), err
}

// ListExecs reads execs, active and ended, sorted by ID: of one sandbox, or of all when sandboxID is empty; those whose IDs start with
// prefix.
func (c *Client) ListExecs(ctx context.Context, sandboxID, prefix string) (all []*agboxv1.ExecStatus, err error) {
	req := &agboxv1.ListExecsRequest{SandboxId: sandboxID, ExecIdPrefix: prefix}
	for {
		resp, err := read(ctx, c, c.sandboxes.ListExecs, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetExecs()...)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// EngineConfirmation is the result of ConfirmEngine. GivenUp and Undecided are sandbox IDs, sorted; an older daemon leaves them empty.
type EngineConfirmation struct {
	// EngineID is the engine's own ID.
	EngineID string `json:"engine_id"`
	// GivenUp are the sandboxes whose containers are lost: each is or becomes FAILED.
	GivenUp []string `json:"given_up,omitempty"`
	// Undecided are sandboxes that the engine does not show but that may still exist. Confirm again.
	Undecided []string `json:"undecided,omitempty"`
}

// ConfirmEngine accepts the daemon's present Docker engine, and gives up the sandboxes that vanished from it
// together. The daemon waits up to 15 s for the proof that each is gone. It can be repeated safely.
func (c *Client) ConfirmEngine(ctx context.Context) (EngineConfirmation, error) {
	resp, err := call(ctx, c, c.admin.ConfirmEngine, &agboxv1.ConfirmEngineRequest{})
	return EngineConfirmation{EngineID: resp.GetEngineId(), GivenUp: resp.GetGivenUp(), Undecided: resp.GetUndecided()}, err
}

// PauseSandbox requests that a READY sandbox is frozen: its processes stop and keep their memory. It fails for a PAUSED
// sandbox; see IsAlreadyPaused. Repeating it during the pause has no effect.
func (c *Client) PauseSandbox(ctx context.Context, sandboxID string) error {
	return request(ctx, c, c.sandboxes.PauseSandbox, &agboxv1.PauseSandboxRequest{SandboxId: sandboxID})
}

// Timeout is when the spec's on_timeout applies to a running sandbox. The zero Timeout is never.
type Timeout struct {
	// After counts from when the daemon records it: 1 s to 10 years, or 0 for never.
	After time.Duration
	// At is used instead of After unless it is zero. It must not be in the past by the daemon's clock.
	At time.Time
	// OnlyExtend keeps a later deadline, and keeps "never".
	OnlyExtend bool
}

// SetSandboxTimeout sets the deadline of a PENDING, READY or PAUSED sandbox. It returns the deadline after the call, zero for
// never, and whether it changed. A timeout counts from the call, also while the sandbox is paused, and a resume keeps the deadline;
// a stop clears it.
func (c *Client) SetSandboxTimeout(ctx context.Context, sandboxID string, t Timeout) (deadline time.Time, changed bool, err error) {
	req := &agboxv1.SetSandboxTimeoutRequest{SandboxId: sandboxID, OnlyExtend: t.OnlyExtend}
	if t.At.IsZero() {
		req.When = &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(t.After)}
	} else {
		req.When = &agboxv1.SetSandboxTimeoutRequest_DeadlineAt{DeadlineAt: timestamppb.New(t.At)}
	}
	resp, err := call(ctx, c, c.sandboxes.SetSandboxTimeout, req)
	if at := resp.GetDeadlineAt(); at != nil {
		deadline = at.AsTime()
	}
	return deadline, resp.GetChanged(), err
}
