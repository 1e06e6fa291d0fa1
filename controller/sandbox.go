package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/store"
)

// reconcileSandbox is one pass over one sandbox.
func (c *Controller) reconcileSandbox(ctx context.Context, id string) (queue.Result, error) {
	l := c.clock.Look() // once per pass: two can disagree about expiry
	rec, sb, err := c.reader.Record(ctx, id)
	if err != nil {
		return queue.Result{}, err
	}
	c.beforeEngine(rec)
	c.freeSpace(rec)
	c.parked.add(id) // before the look: an engine that returns right after it finds the key here
	run, problem := c.link.Life()
	if problem != "" {
		c.status.set(id, engineAway) // no verdict
		return queue.Result{}, nil
	}
	if c.cfg.Store.RebuildPending() { // nor before it is known which objects are ours
		c.status.set(id, message.RecordsAway)
		return queue.Result{}, nil
	}
	c.parked.remove(id)
	saw, err := c.reader.Observe(ctx, sandbox.View{Record: &rec, Sandbox: sb, At: l}, run)
	c.remember(id, saw)
	if err != nil {
		return queue.Result{}, c.explain(id, fmt.Errorf("observe: %w", err))
	}
	return c.carryOut(ctx, rec, sb, saw.World, c.reader.Decide(rec, sb, saw.World, l), l)
}

// remember keeps what later passes and readers need of an observation, whether or not it ended well.
func (c *Controller) remember(id string, saw sandbox.Sight) {
	switch {
	case saw.NoHook:
		c.hooks.forget(id)
	case saw.Hook != nil:
		c.hooks.put(id, *saw.Hook)
	}
	if saw.Ports != nil {
		c.published.set(id, saw.Ports)
	}
}

// beforeEngine does what must not wait for an engine that hangs: the execs of a sandbox that is not wanted to run
// learn of it, and operations that nobody wants any more end, with their errors.
func (c *Controller) beforeEngine(rec plan.Record) {
	if rec.Standing != plan.Live || rec.Desired != storev1.RunState_RUN_STATE_RUN || rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		c.ops.Drop(rec.ID, plan.EnsureImage, plan.CopyFiles)
		c.published.set(rec.ID, nil)
	}
	if ended(rec) {
		c.ops.Drop(rec.ID, plan.StopContainer)
	}
	switch {
	case rec.Standing != plan.Live:
		c.status.set(rec.ID, "")
		c.odd.forgetAll(rec.ID)
		c.absences.Forget(rec.ID, rec.Objects)
		c.hooks.forget(rec.ID)
		c.proofs.forget(rec.ID)
	case rec.ActiveExecs > 0 && !runs(rec):
		c.execs.EnqueueOf(rec.ID)
	}
}

// ended reports whether a stop has nothing to stop any more. Only then is its error nobody's.
func ended(rec plan.Record) bool {
	return rec.Standing != plan.Live || rec.Desired == storev1.RunState_RUN_STATE_DELETE ||
		rec.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && !rec.Progress.GetStopping()
}

// carryOut acts on a plan and reports it. Whatever fails is said in the status; only a terminal error becomes FAILED.
func (c *Controller) carryOut(ctx context.Context, rec plan.Record, sb store.Sandbox, w plan.World, p plan.Plan, l clock.Look) (queue.Result, error) {
	c.status.set(rec.ID, p.Waiting)
	ps := newPass(c, rec, sb, w, l)
	if err := ps.report(ctx, p.Before); err != nil {
		return queue.Result{}, settled(err) // nothing is begun for an intent that is no more
	}
	err := ps.act(ctx, p.Steps)
	var terminal *queue.TerminalError
	var waiting *waitingError
	switch {
	case errors.As(err, &waiting):
		c.status.set(rec.ID, waiting.what)
		return queue.Result{Pending: true}, nil // the end of what it waits for adds the key
	case errors.As(err, &terminal):
		failed := plan.Report{Events: []*agboxv1.SandboxEvent{plan.Failed(terminal.Code, message.Of(terminal.Err))}}
		if reportErr := settled(ps.report(ctx, failed)); reportErr != nil {
			return queue.Result{}, reportErr // not terminal before it is on record
		}
		c.status.set(rec.ID, "")
		c.odd.forget(rec.ID)
		return queue.Result{}, err
	case err != nil:
		return queue.Result{}, c.explain(rec.ID, err)
	}
	c.odd.forget(rec.ID)
	p.After.Objects = ps.objects(p.After)
	if err := settled(ps.report(ctx, p.After)); err != nil {
		return queue.Result{}, err
	}
	if len(p.After.Events) > 0 {
		c.status.set(rec.ID, "")
		c.changedState(rec, p.After.Events)
	}
	waits, err := ps.actAside(ctx, p.Asides)
	if err != nil {
		return queue.Result{}, c.explain(rec.ID, err)
	}
	return queue.Result{Next: p.Next, Pending: waits}, nil
}

// changedState adds the keys of what waited for the sandbox's new state: its own execs, and other frozen sandboxes, of which
// there may be too many now.
func (c *Controller) changedState(rec plan.Record, events []*agboxv1.SandboxEvent) {
	for _, e := range events {
		switch e.GetSandboxState() {
		case agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_FAILED:
			if rec.ActiveExecs > 0 {
				c.execs.EnqueueOf(rec.ID)
			}
		case agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
			for _, id := range c.reader.TooLongFrozen() {
				c.sandboxes.Add(id)
			}
		}
	}
}

// settled takes a report that was too late for no error: the newer intent has its own pass, for its commit added the key.
func settled(err error) error {
	if errdefs.IsAborted(err) {
		return nil
	}
	return err
}

// report records what a pass found, for the generation that it worked on. timeout is how long the sandbox may run from here
// if it becomes READY with it. Errors: ErrAborted when that is no longer the
// newest.
func (c *Controller) report(ctx context.Context, id string, gen uint64, r plan.Report, timeout time.Duration) error {
	if r.Empty() {
		return nil
	}
	err := c.cfg.Store.Report(ctx, id, store.Report{
		Generation: gen, Events: r.Events, EngineRun: r.EngineRun, Progress: r.Progress, LimitsApplied: r.LimitsApplied,
		Objects: r.Objects, Timeout: timeout,
	})
	if errdefs.IsAborted(err) {
		c.log.Debug("intent changed during the pass", "sandbox_id", id, "generation", gen)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, e := range r.Events {
		c.logEvent(id, gen, e)
	}
	return nil
}

func (c *Controller) logEvent(id string, gen uint64, e *agboxv1.SandboxEvent) {
	attrs := []any{"sandbox_id", id, "generation", gen, "event", e.GetEventType().String()}
	if d := e.GetSandboxPhase(); d != nil {
		attrs = append(attrs, "reason", d.GetReason(), "error_code", d.GetErrorCode())
	}
	if d := e.GetService(); d != nil {
		attrs = append(attrs, "service", d.GetServiceName(), "error_code", d.GetErrorCode())
	}
	c.log.Info("sandbox event", attrs...)
}

// explain shows a transient error in the sandbox's status and hands it on.
func (c *Controller) explain(id string, err error) error {
	c.status.set(id, "retrying: "+message.Of(err))
	return err
}

// runs reports whether a sandbox is READY and wanted to be.
func runs(rec plan.Record) bool {
	return rec.Runs()
}
