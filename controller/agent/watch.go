package agent

import (
	"context"
	"time"

	"github.com/agbox/agbox/controller/queue"
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
)

// Watch enqueues agents that print something, until ctx ends. While inotify does not watch their output, it polls.
func (r *Reconciler) Watch(ctx context.Context) {
	queue.Watch(ctx, r.cfg.Watch, r.printed, func(err error) {
		r.cfg.Logger.Error("inotify is unavailable; polling the output of agents", "err", err)
		r.poll(ctx)
	})
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
