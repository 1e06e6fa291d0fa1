package client

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Explain returns the desired state of a sandbox, what the daemon observes, the differences, and the next steps or why it waits. It
// also explains deleted sandboxes, and objects in the engine of an ID without a record.
func (c *Client) Explain(ctx context.Context, sandboxID string) (*agboxv1.ExplainResponse, error) {
	return read(ctx, c, c.admin.Explain, &agboxv1.ExplainRequest{SandboxId: sandboxID})
}

// ExplainAgent is Explain for an agent, by its ID or name. For a deleted agent the error IsNotFound.
func (c *Client) ExplainAgent(ctx context.Context, idOrName string) (*agboxv1.ExplainResponse, error) {
	return read(ctx, c, c.admin.Explain, &agboxv1.ExplainRequest{AgentId: idOrName})
}

// Doctor returns what the daemon, the engine and its kernel are, and what they cannot enforce.
func (c *Client) Doctor(ctx context.Context) ([]*agboxv1.DoctorCheck, error) {
	resp, err := read(ctx, c, c.admin.Doctor, &agboxv1.DoctorRequest{})
	return resp.GetChecks(), err
}

// AttackTargets returns addresses that a sandbox should not reach, as arguments of "agbox-shim attack". Errors: as List.
func (c *Client) AttackTargets(ctx context.Context, sandboxID string) ([]string, error) {
	resp, err := read(ctx, c, c.admin.ListAttackTargets, &agboxv1.ListAttackTargetsRequest{SandboxId: sandboxID})
	return resp.GetTargets(), err
}

// Garbage lists the leftovers of deleted sandboxes.
func (c *Client) Garbage(ctx context.Context) ([]*agboxv1.GarbageItem, error) {
	resp, err := read(ctx, c, c.admin.CollectGarbage, &agboxv1.CollectGarbageRequest{DryRun: true})
	return resp.GetItems(), err
}

// CollectGarbage lists and removes leftovers; objects of sandboxes that the daemon never knew only if unknown is set. Each item has
// its outcome. An item that could not be removed is no error of the call, and the next call lists it again.
func (c *Client) CollectGarbage(ctx context.Context, unknown bool) ([]*agboxv1.GarbageItem, error) {
	resp, err := call(ctx, c, c.admin.CollectGarbage, &agboxv1.CollectGarbageRequest{Unknown: unknown})
	return resp.GetItems(), err
}

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

// Backup writes a backup file of the daemon's records to w, with the logs of execs if withLogs. What was written is a
// backup only if the error is nil.
func (c *Client) Backup(ctx context.Context, w io.Writer, withLogs bool) error {
	p := c.patient(ctx)
	defer p.end()
	p.connect()
	ctx, cancel := context.WithCancel(ctx) // ends the stream when w fails
	defer cancel()
	stream, err := c.admin.Backup(ctx, &agboxv1.BackupRequest{WithLogs: withLogs})
	if err != nil {
		return c.fromStatus(err)
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ended(ctx, c.fromStatus(err))
		}
		if _, err := w.Write(chunk.GetData()); err != nil {
			return err
		}
	}
}
