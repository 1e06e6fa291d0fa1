package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// applied is the result of an apply so far.
type applied struct {
	declared  []string // names of the sandboxes in the manifests
	refused   []string // those of them that were refused
	sandboxes []*agboxv1.SandboxHandle
	agents    []*agboxv1.AgentHandle
	along     []*agboxv1.AgentHandle // agents of replaced sandboxes, read before the replacement
}

func (a *app) applyDocument(ctx context.Context, d document, o applyOptions, there *applied) error {
	switch {
	case o.dryRun:
		return a.rehearse(ctx, d, o.replace, there.declared)
	case d.Agent != nil:
		one, err := a.applyAgent(ctx, d, o)
		if err == nil {
			there.agents = append(there.agents, one)
		}
		return err
	}
	sb, err := a.applySandbox(ctx, d, o, there)
	if err == nil {
		there.sandboxes = append(there.sandboxes, sb)
	}
	return err
}

// refuse records that a sandbox was refused, and returns an error for an agent whose sandbox was refused.
func (there *applied) refuse(d document, err error) error {
	var missing *notFoundError
	switch {
	case d.Agent == nil:
		there.refused = append(there.refused, d.Name)
	case errors.As(err, &missing) && slices.Contains(there.refused, d.Agent.GetSandboxId()):
		return fmt.Errorf("its sandbox %q was refused: see above", d.Agent.GetSandboxId())
	}
	return err
}

// waitApplied waits until agents are in their sandbox and their desired state. Of the agents of replaced sandboxes it waits for those
// whose desired_state is running.
func (a *app) waitApplied(ctx context.Context, there *applied, timeout time.Duration) (failed bool) {
	var run, stop, move []*agboxv1.AgentHandle
	for _, one := range there.agents {
		switch {
		case one.GetMovesTo() != "":
			move = append(move, one)
		case one.GetDesiredState() == wantStopped:
			stop = append(stop, one)
		default:
			run = append(run, one)
		}
	}
	for _, one := range there.along {
		if one.GetDesiredState() != wantStopped && a.agentKind().withID(there.agents, one.GetAgentId()) == nil {
			move = append(move, one)
		}
	}
	for _, group := range []struct {
		agents []*agboxv1.AgentHandle
		want   client.AgentCondition
	}{{move, client.AgentMoved}, {run, client.AgentRunning}, {stop, client.AgentStopped}} {
		failed = waitAll(ctx, a, a.agentKind(), group.agents, string(group.want), timeout) || failed
	}
	return failed
}

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
