package exec

import (
	"context"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/wait"
)

// Adopt watches the journals that an earlier daemon left, and enqueues its execs.
func (r *Reconciler) Adopt() {
	for _, id := range r.cfg.Store.LiveIDs() {
		if err := r.cfg.Files.AddWatch(id); err != nil && !errdefs.IsNotFound(err) {
			r.cfg.Logger.Warn("exec journals are not watched; resyncs look at them", "sandbox_id", id, "err", err)
		}
	}
	r.EnqueueAll()
}

// EnqueueAll enqueues all execs without a recorded end.
func (r *Reconciler) EnqueueAll() { r.EnqueueOf("") }

// EnqueueOf enqueues the execs of a sandbox without a recorded end.
func (r *Reconciler) EnqueueOf(sandboxID string) {
	for _, id := range r.cfg.Store.ActiveExecs(sandboxID) {
		r.cfg.Queue.Add(id)
	}
}

// RetryAll resets the backoff of all execs without a recorded end, and enqueues them.
func (r *Reconciler) RetryAll() {
	for _, id := range r.cfg.Store.ActiveExecs("") {
		r.cfg.Queue.Forget(id)
		r.cfg.Queue.Add(id)
	}
}

// watchRetry is the delay before a lost watch is set up again.
const watchRetry = 5 * time.Second

// Watch enqueues execs whose journals change, until ctx ends. Without a watch, the next resync enqueues them.
func (r *Reconciler) Watch(ctx context.Context) {
	if r.cfg.Watch == nil {
		return
	}
	for ctx.Err() == nil {
		err := r.cfg.Watch(ctx, r.changed)
		if ctx.Err() != nil {
			return
		}
		r.cfg.Logger.Error("exec journals are not watched", "err", err)
		if wait.For(ctx, watchRetry) != nil {
			return
		}
		r.EnqueueAll()
	}
}

func (r *Reconciler) changed(sandboxID, execID string) {
	switch {
	case execid.Internal(execID): // internal: it has no key of its own
	case execID != "":
		r.cfg.Queue.Add(execID)
	case sandboxID != "":
		r.EnqueueOf(sandboxID)
	default:
		r.EnqueueAll()
	}
	if execID != "" {
		r.cfg.Changed(sandboxID, execID)
	}
}
