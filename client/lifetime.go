package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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
