package client

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Drain starts a drain and returns at once; DrainStatus returns its progress. With exit in the request the daemon
// ends when it is done, and calls then fail with an error that IsUnavailable.
func (c *Client) Drain(ctx context.Context, req *agboxv1.DrainRequest) (*agboxv1.DrainStatus, error) {
	resp, err := call(ctx, c, c.admin.Drain, req)
	return resp.GetStatus(), err
}

// Undrain ends a drain; parked agents start again. changed is false if the daemon was not draining.
func (c *Client) Undrain(ctx context.Context) (changed bool, err error) {
	resp, err := call(ctx, c, c.admin.Undrain, &agboxv1.UndrainRequest{})
	return resp.GetChanged(), err
}

// DrainStatus returns whether the daemon drains, and the progress. Unlike other reads it is not retried while the daemon does not
// answer, because a drain may end the daemon.
func (c *Client) DrainStatus(ctx context.Context) (*agboxv1.DrainStatus, error) {
	resp, err := once(ctx, c, c.admin.GetDrainStatus, &agboxv1.GetDrainStatusRequest{})
	return resp.GetStatus(), err
}
