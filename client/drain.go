package client

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Drain begins to drain the daemon and returns at once; DrainStatus tells how far it is. With exit in the request the daemon
// ends when it is done, and calls then fail with an error that IsUnavailable.
func (c *Client) Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainStatus, error) {
	resp, err := call(ctx, c, c.admin.Drain, req)
	return resp.GetStatus(), err
}

// Undrain ends a drain: what was parked comes back. changed is false when nothing was draining.
func (c *Client) Undrain(ctx context.Context) (changed bool, err error) {
	resp, err := call(ctx, c, c.admin.Undrain, &agboxv1.UndrainRequest{})
	return resp.GetChanged(), err
}

// DrainStatus says whether the daemon drains and how far it is. Unlike other reads it is not repeated while the daemon is
// away: that is how a drain may end.
func (c *Client) DrainStatus(ctx context.Context) (*agboxv1.DrainStatus, error) {
	resp, err := once(ctx, c, c.admin.GetDrainStatus, &agboxv1.GetDrainStatusRequest{})
	return resp.GetStatus(), err
}
