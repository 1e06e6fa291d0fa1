package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// PauseSandbox asks a READY sandbox to hold still: its processes are frozen and keep their memory. It fails for one that is
// PAUSED already; see IsAlreadyPaused. Repeating it while the pause is under way changes nothing.
func (c *Client) PauseSandbox(ctx context.Context, sandboxID string) error {
	_, err := call(ctx, c, c.sandboxes.PauseSandbox, &agboxv1.PauseSandboxRequest{SandboxId: sandboxID})
	return err
}

// Timeout says when a sandbox that runs is to end by its spec's on_timeout. The zero Timeout is never.
type Timeout struct {
	// After is counted from when the daemon records it: 1 s to 10 years, or 0 for never.
	After time.Duration
	// At is used instead of After unless it is zero. It must not be in the past by the daemon's clock.
	At time.Time
	// OnlyExtend leaves a deadline that is later, or none at all, as it is.
	OnlyExtend bool
}

// SetSandboxTimeout moves the end of a PENDING, READY or PAUSED sandbox. It returns the deadline as it is afterwards, zero for
// never, and whether anything changed. What is set while the sandbox is paused counts from then and holds after the resume;
// a stop forgets it.
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
