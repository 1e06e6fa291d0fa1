package cli

import (
	"context"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// applied is what an apply has come to.
type applied struct {
	declared  []string // names of the sandboxes in the manifests
	sandboxes []*agboxv1.SandboxHandle
	agents    []*agboxv1.AgentHandle
}

func (a *app) applyDocument(ctx context.Context, c *client.Client, d document, o applyOptions, there *applied) error {
	switch {
	case o.dryRun && d.Agent != nil:
		return a.rehearseAgent(ctx, c, d, o.replace, there.declared)
	case o.dryRun:
		return a.rehearse(ctx, c, d, o.replace)
	case d.Agent != nil:
		one, err := a.applyAgent(ctx, c, d, o)
		if err == nil {
			there.agents = append(there.agents, one)
		}
		return err
	}
	sb, err := a.applyOne(ctx, c, d, o)
	if err == nil {
		there.sandboxes = append(there.sandboxes, sb)
	}
	return err
}

// waitApplied waits until agents are as is wanted of them.
func (a *app) waitApplied(ctx context.Context, agents []*agboxv1.AgentHandle, timeout time.Duration) (failed bool) {
	var run, stop []*agboxv1.AgentHandle
	for _, one := range agents {
		if one.GetDesiredState() == wantStopped {
			stop = append(stop, one)
		} else {
			run = append(run, one)
		}
	}
	failed = len(run) > 0 && a.waitAgents(ctx, run, client.AgentRunning, timeout)
	return len(stop) > 0 && a.waitAgents(ctx, stop, client.AgentStopped, timeout) || failed
}
