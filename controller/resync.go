package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/agbox/agbox/controller/absence"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// engineEvent enqueues the sandbox of an engine event.
func (c *Controller) engineEvent(e dockerx.Event) {
	c.sandboxes.Note(e)
	c.absences.Note(e)
	id := e.Labels[naming.SandboxID]
	if id == "" || e.Action == dockerx.ActionDisconnect && !c.reconnects(id) {
		return
	}
	c.sandboxLoop.Add(id)
	if e.Action == dockerx.ActionDie {
		c.execs.EnqueueOf(id) // their locks are free now
	}
}

// reconnects reports whether a disconnect may be one that a pass must repair: the sandbox is READY and wanted to run. In any other state,
// the commit that makes it so adds the key. The engine also sends a disconnect at each end of a container, where a stop or a delete needs
// no further pass, and at each failed start, whose retry waits for its backoff.
func (c *Controller) reconnects(id string) bool {
	sb, err := c.cfg.Store.Sandbox(context.Background(), id)
	return err == nil && c.reader.RecordOf(sb).Runs() && c.sandboxLoop.Tries(id) == 0
}

// engineReturned resets the backoff of every sandbox, because most were caused by the engine, and asks for a resync. That enqueues the
// sandboxes whose status still says that they wait for the engine.
func (c *Controller) engineReturned() {
	for _, id := range c.cfg.Store.LiveIDs() {
		c.sandboxLoop.Forget(id)
	}
	c.askResync()
}

// RoomReturned requeues every key that may have failed because the disk was full, and resets its backoff.
func (c *Controller) RoomReturned() {
	c.execs.ForgetFailures()
	c.execs.EnqueueAll() // at once: a resync may wait for the engine, and they may not need it
	c.agents.EnqueueAll()
	c.engineReturned()
}

func (c *Controller) askResync() {
	select {
	case c.resyncNow <- struct{}{}:
	default: // one is due already
	}
}

func (c *Controller) resyncLoop(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.ResyncInterval)
	defer ticker.Stop()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-retry:
		case <-c.resyncNow:
		}
		c.execs.EnqueueAll()
		c.agents.EnqueueAll()
		if err := c.purge(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("history that is due is not purged yet", "err", err)
		}
		if err := c.resync(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("resync failed; retrying", "err", err)
			retry = time.After(resyncRetry)
		}
	}
}

// resyncRetry is the delay before an interrupted resync is retried: passes that found no engine rely on it.
const resyncRetry = 2 * time.Second

// resync observes everything with two engine calls and enqueues what is not as wanted. It catches every lost event, and at the start it is the
// recovery. It takes a third call as long as a snapshot may have been cut off, and a few more once an hour if there were template builds.
func (c *Controller) resync(ctx context.Context) error {
	run, problem := c.link.Life()
	if problem != "" || c.cfg.Store.RebuildPending() {
		return nil // the engine's return, or the end of the rebuild, asks for another one
	}
	c.networks.Refresh(ctx)
	began := time.Now()
	worlds, err := c.objects.Worlds(ctx, "")
	if err != nil {
		return err
	}
	delete(worlds, "")
	live, shown := c.cfg.Store.LiveIDs(), map[string]bool{}
	for _, id := range live {
		if worlds[id] == nil {
			worlds[id] = &plan.World{}
		}
		shown[id] = worlds[id].HasPrimary()
	}
	c.absences.Listed(began, live, func(id string) bool { return shown[id] })
	listing, err := c.absences.Compare(ctx, run, shown)
	if err != nil {
		return err
	}
	l, unknown := c.clock.Read(), 0
	for id, w := range worlds {
		w.Run = run
		p, rec, sb, err := c.reader.Glance(ctx, id, w, l)
		if p.InDoubt && listing.Recall(absence.Sandbox{Record: rec, Name: absence.NameOf(sb)}, w) {
			p = c.reader.Decide(rec, sb, *w, l)
		}
		unseen := rec.Runs() && w.HasPrimary() && c.sandboxes.PortsUnseen(id, sb.Spec)
		switch {
		case p.Unknown:
			unknown++
			c.log.Warn("Docker holds objects of a sandbox that this store never knew, or deleted while the engine hid them; keeping them", "sandbox_id", id)
		case err != nil, unseen, c.absences.HasConfirmation(id), !p.Idle(), c.sandboxes.Recorded(id) != p.Waiting:
			c.sandboxLoop.Add(id) // its own pass inspects what only a pass does, and reports what is wrong, or that nothing is any more
		case p.Next > 0:
			c.sandboxLoop.AddAfter(id, p.Next)
		}
	}
	c.cfg.Metrics.Resynced(l.Now, unknown)
	if err := c.networks.ReportDenials(ctx); err != nil && ctx.Err() == nil { // the kernel keeps them for the next resync
		c.log.Warn("denials of network policies are not reported yet", "err", err)
	}
	for _, garbage := range []struct {
		what  string
		sweep func(context.Context) error
	}{
		{"parts of snapshots", c.snapshots.Sweep}, {"what template builds left", c.templates.Sweep}, {"packet filter rules", c.networks.Sweep},
	} {
		if err := garbage.sweep(ctx); err != nil && ctx.Err() == nil { // the next resync tries again: nothing waits for it
			c.log.Warn("a resync does not remove all garbage yet", "what", garbage.what, "err", err)
		}
	}
	return nil
}

// purgeBatch bounds how many histories one resync purges.
const purgeBatch = 100

// purge drops the history of sandboxes whose deletion is older than EventRetention, unless the clock is in doubt. Their IDs stay reserved.
func (c *Controller) purge(ctx context.Context) error {
	retention, l := c.inForce().EventRetention, c.clock.Read()
	if retention <= 0 || l.Hold > 0 {
		return nil
	}
	ids, err := c.cfg.Store.DeletedBefore(ctx, l.Moment, retention, purgeBatch)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := c.cfg.Store.PurgeSandbox(ctx, id); err != nil {
			return fmt.Errorf("purge %s: %w", id, err)
		}
		c.log.Info("history purged", "sandbox_id", id)
	}
	return nil
}
