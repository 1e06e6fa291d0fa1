package agent

import (
	"context"
	"time"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/wait"
)

// Bounds of polling the output of agents while the kernel does not watch it.
const (
	// pollInterval grows by itself with every pollAtOnce agents.
	pollInterval = 100 * time.Millisecond
	pollAtOnce   = 20
	// watchRetry is the pause before a lost watch is set up again.
	watchRetry = 5 * time.Second
	// backlogReads bounds how much of one agent is read before the others have their turn.
	backlogReads = 64
)

// Watch adds the keys of agents that print something until ctx ends. While the kernel does not watch their output it polls.
func (r *Reconciler) Watch(ctx context.Context) {
	if r.cfg.Watch == nil {
		return
	}
	for ctx.Err() == nil {
		err := r.cfg.Watch(ctx, r.printed)
		if ctx.Err() != nil {
			return
		}
		r.cfg.Logger.Error("inotify is unavailable; polling the output of agents", "err", err)
		r.poll(ctx)
	}
}

// poll enqueues all agents periodically until it is time to ask the kernel for a watch again.
func (r *Reconciler) poll(ctx context.Context) {
	for begun := time.Now(); time.Since(begun) < watchRetry; {
		n := len(r.cfg.Store.LiveAgentIDs())
		if wait.For(ctx, pollInterval*time.Duration(1+n/pollAtOnce)) != nil {
			return
		}
		r.EnqueueAll()
	}
}

func (r *Reconciler) printed(sandboxID, execID string) {
	switch {
	case execID != "":
		r.EnqueueExec(execID)
	case sandboxID != "":
		r.EnqueueOf(sandboxID)
	default:
		r.EnqueueAll()
	}
}

// EnqueueAll adds the keys of all agents.
func (r *Reconciler) EnqueueAll() {
	for _, id := range r.cfg.Store.LiveAgentIDs() {
		r.cfg.Queue.Add(id)
	}
}

// EnqueueOf adds the keys of the agents of a sandbox.
func (r *Reconciler) EnqueueOf(sandboxID string) {
	for _, id := range r.cfg.Store.AgentsOf(sandboxID) {
		r.cfg.Queue.Add(id)
	}
}

// EnqueueExec adds the key of the agent whose process an exec is, if it is one.
func (r *Reconciler) EnqueueExec(execID string) {
	if id, _, ok := execid.OfAgent(execID); ok {
		r.cfg.Queue.Add(id)
	}
}

// Hydrate records what the agents have printed while no daemon was there, before any pass decides, and adds their keys. An agent whose
// output can't be read does not stop it: its own pass says why.
func (r *Reconciler) Hydrate(ctx context.Context) {
	if r.cfg.Store.RebuildPending() {
		return // the end of the rebuild adds the keys
	}
	for _, id := range r.cfg.Store.LiveAgentIDs() {
		if err := r.readBacklog(ctx, id); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("the output of an agent is not read yet", "agent_id", id, "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
	r.EnqueueAll()
}

func (r *Reconciler) readBacklog(ctx context.Context, id string) error {
	for range backlogReads {
		a, err := r.cfg.Store.Agent(ctx, id)
		if err != nil || a.Corrupt || a.Status.GetIncarnation() == 0 {
			return err
		}
		p, err := r.observe(ctx, a, r.cfg.Clock.Look())
		if err != nil || !p.World.Unread || r.cfg.NoRoom() != "" {
			return err
		}
		if err := p.read(ctx); err != nil {
			return err
		}
	}
	return nil
}
