package agent

import (
	"context"
	"time"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/wait"
)

// Bounds of polling the output of agents while inotify does not watch it.
const (
	// pollInterval is the base interval: it grows with every pollAtOnce agents.
	pollInterval = 100 * time.Millisecond
	pollAtOnce   = 20
	// watchRetry is the delay before a lost watch is set up again.
	watchRetry = 5 * time.Second
	// backlogReads bounds the reads of one agent's backlog before the other agents have their turn.
	backlogReads = 64
)

// Watch enqueues agents that print something, until ctx ends. While inotify does not watch their output, it polls.
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

// poll enqueues all agents periodically for watchRetry; then Watch tries to set up the watch again.
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

// EnqueueAll enqueues all agents.
func (r *Reconciler) EnqueueAll() {
	for _, id := range r.cfg.Store.LiveAgentIDs() {
		r.cfg.Queue.Add(id)
	}
}

// EnqueueOf enqueues the agents of a sandbox.
func (r *Reconciler) EnqueueOf(sandboxID string) {
	for _, id := range r.cfg.Store.AgentsOf(sandboxID) {
		r.cfg.Queue.Add(id)
	}
}

// EnqueueExec enqueues the agent whose process the exec is, if it is one.
func (r *Reconciler) EnqueueExec(execID string) {
	if id, _, ok := execid.OfAgent(execID); ok {
		r.cfg.Queue.Add(id)
	}
}

// Hydrate records the output that the agents printed while no daemon ran, before any pass decides, and enqueues all agents. Unreadable
// output of one agent does not stop Hydrate: the agent's own pass reports why.
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
		p, err := r.observe(ctx, a, r.cfg.Clock.Read())
		if err != nil || !p.World.Unread || r.cfg.NoRoom() != "" {
			return err
		}
		if err := p.read(ctx); err != nil {
			return err
		}
	}
	return nil
}
