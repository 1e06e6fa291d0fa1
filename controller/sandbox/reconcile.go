package sandbox

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
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/store"
)

// engineAway is the status of a sandbox that waits for a usable engine. Status replaces it by the link's reason.
const engineAway = "waiting for the engine"

// Reconcile makes one pass over one sandbox.
func (r *Reconciler) Reconcile(ctx context.Context, id string) (queue.Result, error) {
	l := r.o.Clock.Read() // once per pass: two reads can disagree about expiry
	rec, sb, err := r.reader.Record(ctx, id)
	if err != nil {
		return queue.Result{}, err
	}
	r.beforeEngine(rec)
	if rec.Standing == plan.Live {
		r.o.Secrets.Want(sb)
	}
	r.freeSpace(rec)
	run, why := r.mayJudge()
	if why != "" {
		if rec.Standing == plan.Live {
			r.scratch.setStatus(id, why) // the resync that follows the engine's return enqueues every key with an outdated status
		}
		if run, why = r.mayJudge(); why != "" { // read again: the engine may have returned before the status was set
			return queue.Result{}, nil
		}
	}
	if rec, sb, err = r.claim(ctx, rec, sb, run); err != nil {
		return queue.Result{}, r.recordRetry(id, fmt.Errorf("observe: %w", err))
	}
	w, ports, err := r.reader.Observe(ctx, View{Record: rec, Sandbox: sb, At: l}, run)
	r.remember(id, w, ports)
	if err != nil {
		return queue.Result{}, r.recordRetry(id, fmt.Errorf("observe: %w", err))
	}
	return r.carryOut(ctx, rec, sb, w, r.reader.Decide(rec, sb, w, l), l)
}

// mayJudge returns the engine's life, or why nothing can be judged now: the engine is away, or it is not known which objects are ours.
func (r *Reconciler) mayJudge() (run *storev1.EngineRun, why string) {
	run, problem := r.o.Link.Life()
	switch {
	case problem != "":
		why = engineAway
	case r.o.Store.RebuildPending():
		why = message.RecordsAway
	}
	return run, why
}

// remember keeps what later passes and readers need of an observation, even of one that failed.
func (r *Reconciler) remember(id string, w plan.World, ports []*agboxv1.PublishedPort) {
	if w.Hook != nil && !w.Hook.Since.IsZero() {
		r.scratch.Change(id, func(m *memory) { m.hook.start(w.Hook.Index, w.Hook.Since) })
	}
	if w.Start.Pid > 0 {
		r.scratch.Change(id, func(m *memory) { m.start.start(w.Start.Pid, w.Start.Since) })
	} else if w.Start.Reported {
		r.scratch.Change(id, func(m *memory) { m.start = HookWait{} })
	}
	if ports != nil {
		r.scratch.setPorts(id, ports)
	}
}

// beforeEngine does what must not wait for an engine that hangs: it cancels operations that are no longer wanted, with their errors.
func (r *Reconciler) beforeEngine(rec plan.Record) {
	if rec.Standing != plan.Live || !rec.WantsRun() {
		r.ops.Drop(rec.ID, plan.EnsureImage, plan.CopyFiles)
		r.scratch.setPorts(rec.ID, nil)
	}
	if ended(rec) {
		r.ops.Drop(rec.ID, plan.StopContainer)
	}
	if rec.Standing != plan.Live {
		r.scratch.Forget(rec.ID)
		r.o.Absences.Forget(rec.ID, rec.Objects)
	}
}

// ended reports whether a stop has nothing left to stop. Only then may the error of the stop be dropped.
func ended(rec plan.Record) bool {
	return rec.Departs() ||
		rec.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && !rec.Progress.GetStopping()
}

// carryOut runs a plan and reports it. The status shows any error; only a TerminalError makes the sandbox FAILED.
func (r *Reconciler) carryOut(ctx context.Context, rec plan.Record, sb store.Sandbox, w plan.World, p plan.Plan, l clock.Reading) (queue.Result, error) {
	r.scratch.setStatus(rec.ID, p.Waiting)
	ps := &pass{
		Reconciler: r, rec: rec, sb: sb, w: w, set: r.o.Settings(), at: l.Moment, progress: rec.Progress,
		images: map[string]dockerx.Image{}, made: map[string]string{},
	}
	if err := ps.report(ctx, p.Before); err != nil {
		return queue.Result{}, ignoreAborted(err) // no step starts for an outdated intent
	}
	err := ps.act(ctx, p.Steps)
	terminal, failed := errors.AsType[*queue.TerminalError](err)
	switch {
	case waits(err):
		r.scratch.setStatus(rec.ID, err.Error())
		return queue.Result{Pending: true}, nil // the end of the background operation adds the key
	case failed:
		event := plan.Failed(terminal.Code, message.Of(terminal.Err))
		if reportErr := ignoreAborted(ps.report(ctx, plan.Report{Events: []*agboxv1.SandboxEvent{event}})); reportErr != nil {
			return queue.Result{}, reportErr // the error is not terminal until it is recorded
		}
		r.scratch.setStatus(rec.ID, "")
		r.scratch.fine(rec.ID, "")
		return queue.Result{}, err
	case err != nil:
		return queue.Result{}, r.recordRetry(rec.ID, err)
	}
	r.scratch.fine(rec.ID, "")
	p.After.Objects = ps.objects(p.After)
	if err := ignoreAborted(ps.report(ctx, p.After)); err != nil {
		return queue.Result{}, err
	}
	if len(p.After.Events) > 0 {
		r.scratch.setStatus(rec.ID, "")
		r.boundFrozen(p.After.Events)
	}
	waits, err := ps.actAside(ctx, p.Asides)
	if err != nil {
		return queue.Result{}, r.recordRetry(rec.ID, err)
	}
	return queue.Result{Next: p.Next, Pending: waits}, nil
}

// boundFrozen enqueues the sandboxes frozen for longest when another one was frozen and more are frozen than allowed.
func (r *Reconciler) boundFrozen(events []*agboxv1.SandboxEvent) {
	for _, e := range events {
		if e.GetSandboxState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
			for _, id := range r.reader.TooLongFrozen() {
				r.o.Queue.Add(id)
			}
		}
	}
}

// ignoreAborted drops ErrAborted: the commit of the newer intent has already enqueued the key.
func ignoreAborted(err error) error { return queue.Ignore(err, errdefs.IsAborted) }

// report records the result of a pass, for the generation that it worked on. timeout is how long the sandbox may run from now on if the
// report makes it READY. Errors: ErrAborted if that generation is no longer the newest.
func (r *Reconciler) report(ctx context.Context, id string, gen uint64, rep plan.Report, timeout time.Duration) error {
	if rep.Empty() {
		return nil
	}
	err := r.o.Store.Report(ctx, id, store.Report{
		Generation: gen, Events: rep.Events, EngineRun: rep.EngineRun, Progress: rep.Progress, LimitsApplied: rep.LimitsApplied,
		Objects: rep.Objects, Timeout: timeout,
	})
	if errdefs.IsAborted(err) {
		r.log.Debug("intent changed during the pass", "sandbox_id", id, "generation", gen)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, e := range rep.Events {
		r.logEvent(id, gen, e)
	}
	return nil
}

func (r *Reconciler) logEvent(id string, gen uint64, e *agboxv1.SandboxEvent) {
	attrs := []any{"sandbox_id", id, "generation", gen, "event", e.GetEventType().String()}
	if d := e.GetSandboxPhase(); d != nil {
		attrs = append(attrs, "reason", d.GetReason(), "error_code", d.GetErrorCode())
	}
	if d := e.GetService(); d != nil {
		attrs = append(attrs, "service", d.GetServiceName(), "error_code", d.GetErrorCode())
	}
	r.log.Info("sandbox event", attrs...)
}

// recordRetry shows a transient error in the sandbox's status and returns it.
func (r *Reconciler) recordRetry(id string, err error) error {
	r.scratch.setStatus(id, "retrying: "+message.Of(err))
	return err
}

// freeSpace removes the exec logs of a sandbox that is being deleted while the disk is full: the delete removes them anyway, and may need
// their space. The logs of agents stay until their output is recorded.
func (r *Reconciler) freeSpace(rec plan.Record) {
	if rec.Standing != plan.Live || rec.Desired != storev1.RunState_RUN_STATE_DELETE || r.o.NoRoom() == "" {
		return
	}
	freed, err := r.o.Files.DropLogs(rec.ID, func(execID string) bool {
		_, _, agent := execid.OfAgent(execID)
		return agent
	})
	switch {
	case err != nil:
		r.log.Warn("logs of a sandbox that is being deleted are not dropped yet", "sandbox_id", rec.ID, "err", err)
	case freed > 0:
		r.log.Warn("the disk is full: logs of a sandbox that is being deleted are dropped", "sandbox_id", rec.ID, "bytes", freed)
	}
}
