package controller

import (
	"time"

	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/store"
)

// newExecs connects the Reconciler of execs with the other packages.
func (c *Controller) newExecs() *exec.Reconciler {
	return exec.New(exec.Options{
		Store: c.cfg.Store, Files: c.cfg.Execs, Sandbox: c.reader.Record, TurnLeft: c.agents.Observer().TurnLeft,
		Limits: c.execLimits, IdleTTL: func(sb store.Sandbox) time.Duration { return sandbox.IdleTTL(sb, c.inForce()) }, MakeRoom: c.cfg.MakeRoom,
		Queue: c.execLoop, Sandboxes: c.sandboxLoop, Watch: c.cfg.WatchExecs, Changed: c.journalChanged,
		Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

func (c *Controller) execLimits(sandboxID string) exec.Limits {
	s := c.inForce()
	return exec.Limits{
		LogBytes: c.quotas.LogLimit(sandboxID, s.LogLimit), AgentLogBytes: s.LogLimit, KillAtLogLimit: s.KillAtLogLimit, CancelGrace: s.CancelGrace,
	}
}

// journalChanged enqueues what else waits for an exec: agents for their processes and helper commands, sandboxes for their hooks.
func (c *Controller) journalChanged(sandboxID, execID string) {
	switch {
	case execid.KindOf(execID) == execid.Helper:
		c.agents.EnqueueOf(sandboxID)
	case execid.Internal(execID): // a hook
		c.sandboxLoop.Add(sandboxID)
	default:
		c.agents.EnqueueExec(execID)
	}
}
