package client

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Explain says of one sandbox what is wanted, what there is, what differs, and what the daemon does next or why it waits. It
// also explains deleted ones, and what the engine holds of an ID that the daemon never knew.
func (c *Client) Explain(ctx context.Context, sandboxID string) (*agboxv1.ExplainResponse, error) {
	return read(ctx, c, c.admin.Explain, &agboxv1.ExplainRequest{SandboxId: sandboxID})
}

// ExplainAgent says the same of one agent, by its ID or name. One that is deleted is no more: the error IsNotFound.
func (c *Client) ExplainAgent(ctx context.Context, idOrName string) (*agboxv1.ExplainResponse, error) {
	return read(ctx, c, c.admin.Explain, &agboxv1.ExplainRequest{AgentId: idOrName})
}

// Garbage lists what is left of sandboxes that are no more.
func (c *Client) Garbage(ctx context.Context) ([]*agboxv1.GarbageItem, error) {
	resp, err := read(ctx, c, c.admin.CollectGarbage, &agboxv1.CollectGarbageRequest{DryRun: true})
	return resp.GetItems(), err
}

// CollectGarbage lists the same and removes it, but for what the daemon never knew, unless unknown is set. Each item says
// the outcome; one that could not be removed is no error of the call, and is listed again by the next one.
func (c *Client) CollectGarbage(ctx context.Context, unknown bool) ([]*agboxv1.GarbageItem, error) {
	resp, err := call(ctx, c, c.admin.CollectGarbage, &agboxv1.CollectGarbageRequest{Unknown: unknown})
	return resp.GetItems(), err
}
