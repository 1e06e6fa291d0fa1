package controller

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/store"
)

// newAgents connects the Reconciler of agents with the other packages.
func (c *Controller) newAgents() *agent.Reconciler {
	return agent.New(agent.Options{
		Store: c.cfg.Store, Files: c.cfg.Execs, Clock: c.clock, Sandbox: func(ctx context.Context, id string) (plan.Record, store.Sandbox, error) {
			return c.reader.Record(ctx, id)
		}, InDoubt: func(id string) bool { return c.absences.Doubts(id) },
		Queue: c.agentLoop, EnqueueSandbox: c.sandboxLoop.Add,
		Limits: c.agentLimits, NoRoom: c.noRoom, Watch: c.cfg.WatchAgents, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

func (c *Controller) agentLimits(sandboxID string) agent.Limits {
	s := c.inForce()
	return agent.Limits{LogBytes: s.LogLimit, OutboxBytes: c.quotas.LogLimit(sandboxID, s.LogLimit), CancelGrace: s.CancelGrace}
}

// AgentStatus returns in one sentence what an agent waits for; unverified: no pass has judged it since the daemon started.
func (c *Controller) AgentStatus(agentID string) (line string, unverified bool) {
	return c.agents.Status(agentID)
}

// Drain closes the gates and starts to park agents, or only closes the gates, by mode. It returns once that is recorded.
func (c *Controller) Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error) {
	return c.drainer.Drain(ctx, o)
}

// SaveNow stops waiting for agents in a turn: their work is saved now.
func (c *Controller) SaveNow(ctx context.Context) error { return c.drainer.SaveNow(ctx) }

// Undrain opens the gates. changed is false if there was no drain.
func (c *Controller) Undrain(ctx context.Context) (changed bool, err error) {
	return c.drainer.Undrain(ctx)
}

// DrainStatus returns the phase and the progress of a drain.
func (c *Controller) DrainStatus() *agboxv1.DrainStatus { return c.drainer.Status() }

// BusyAgents returns the number of agents in a turn.
func (c *Controller) BusyAgents() int { return len(c.drainer.BusyAgents()) }
