package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// replace deletes the old sandbox without its agents, waits until everything is removed, and creates the new one, to which the
// agents move. If it is interrupted in between, the name is free, and another apply creates the sandbox.
//
// It first does a dry run of the create, to find mistakes of the new sandbox before it deletes the old one.
func (a *app) replace(ctx context.Context, old *agboxv1.SandboxHandle, d document, why string, o applyOptions, there *applied) (*agboxv1.SandboxHandle, error) {
	if err := a.wouldCreate(ctx, d, old.GetSandboxId()); err != nil {
		return nil, err
	}
	housed, err := a.housed(ctx)
	if err != nil {
		return nil, err
	}
	agents := housed[old.GetSandboxId()]
	fmt.Fprintf(a.Err, "replacing sandbox/%s (%s): %s\n", d.Name, why, losses(old, agents))
	there.along = append(there.along, agents...)
	if err := a.conn().DeleteSandboxKeepingAgents(ctx, old.GetSandboxId()); err != nil && !client.IsNotFound(err) {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = a.awaitSandbox(waiting, old, string(client.Deleted), o.timeout)
	if err != nil && !client.IsNotFound(err) {
		return nil, fmt.Errorf("%w; apply again to create it", err)
	}
	return a.create(ctx, d, "replaced")
}

// wouldCreate has the daemon check a create, as if the sandbox with the ID replaces were deleted.
func (a *app) wouldCreate(ctx context.Context, d document, replaces string) error {
	_, err := a.conn().CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{
		CreateSpec: d.Spec, SandboxId: uuid.NewString(), Name: d.Name, DryRun: true, Replaces: replaces,
	})
	return err
}
