package controller

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/internal/agent/agentstate"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// reconcileExec is one pass over one exec. It needs the store and the files of the exec, never the engine.
func (c *Controller) reconcileExec(ctx context.Context, id string) (queue.Result, error) {
	ex, err := c.cfg.Store.Exec(ctx, id)
	if errdefs.IsNotFound(err) || err == nil && ex.End != nil {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, fmt.Errorf("load exec: %w", err)
	}
	rec, sb, err := c.reader.Record(ctx, ex.SandboxID)
	if err != nil {
		return queue.Result{}, err
	}
	status, err := c.cfg.Execs.Look(ex.SandboxID, ex.ID, ex.Desired.GetNonce())
	if err != nil {
		return queue.Result{}, fmt.Errorf("look at the journal: %w", err)
	}
	return c.actOnExec(ctx, ex, rec, sb, status)
}

func (c *Controller) actOnExec(ctx context.Context, ex store.Exec, rec plan.Record, sb store.Sandbox, status execjournal.Status) (queue.Result, error) {
	want := execRecord(ex, rec)
	want.TurnLeft = c.agents.Observer().TurnLeft(ctx, ex.ID, rec)
	p := plan.DecideExec(want, sandbox.PhaseOf(status))
	if p.Action == plan.ExecClose {
		var err error
		status, err = c.cfg.Execs.Close(ex.SandboxID, ex.ID, ex.Desired.GetNonce(), "not wanted any more")
		if err != nil {
			return queue.Result{}, fmt.Errorf("close the fence: %w", c.makeRoom(err))
		}
		p = plan.DecideExec(want, sandbox.PhaseOf(status)) // whoever made the journal first has decided
	}
	switch p.Action {
	case plan.ExecRequest:
		return queue.Result{}, c.cfg.Execs.Start(ex.SandboxID, c.request(ex, sb.Spec))
	case plan.ExecCancel:
		return queue.Result{Next: p.Next}, c.makeRoom(c.cfg.Execs.Cancel(ex.SandboxID, ex.ID, ex.Desired.GetNonce()))
	case plan.ExecRecordEnd:
		return queue.Result{}, c.recordEnd(ctx, ex, rec, endOf(p.Outcome, status.Journal, want))
	}
	return queue.Result{Next: p.Next}, nil
}

// recordEnd removes the request before the end is on record: afterwards nobody would look again.
func (c *Controller) recordEnd(ctx context.Context, ex store.Exec, rec plan.Record, end *storev1.ExecEnd) error {
	if err := c.cfg.Execs.Forget(ex.SandboxID, ex.ID); err != nil {
		return fmt.Errorf("remove the request: %w", err)
	}
	if err := c.cfg.Store.EndExec(ctx, ex.ID, end); err != nil {
		return fmt.Errorf("record the end: %w", err)
	}
	c.cfg.Metrics.LogDropped(end.GetStdoutDroppedBytes() + end.GetStderrDroppedBytes())
	c.log.Info("exec ended", "sandbox_id", ex.SandboxID, "exec_id", ex.ID,
		"state", agboxv1.ExecState(end.GetState()).String(), "error_code", end.GetErrorCode())
	if !runs(rec) {
		c.sandboxes.Add(ex.SandboxID) // a stop or a delete may wait for this
		return nil
	}
	return c.scheduleIdle(ctx, ex.SandboxID)
}

// scheduleIdle has the sandbox looked at when it may be idle for too long, instead of now: an exec costs no pass over
// its sandbox.
func (c *Controller) scheduleIdle(ctx context.Context, sandboxID string) error {
	sb, err := c.cfg.Store.Sandbox(ctx, sandboxID)
	if err != nil {
		return fmt.Errorf("load record: %w", err)
	}
	if sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN {
		c.sandboxes.Add(sandboxID) // its stop came during this pass
		return nil
	}
	if ttl := sandbox.IdleTTL(sb, c.inForce()); ttl > 0 && len(sb.ActiveExecs) == 0 {
		c.sandboxes.AddAfter(sandboxID, ttl)
	}
	return nil
}

func (c *Controller) request(ex store.Exec, spec *agboxv1.CreateSpec) execjournal.Request {
	s := c.inForce()
	r := execjournal.Request{
		Version: execjournal.Version, ExecID: ex.ID, Nonce: ex.Desired.GetNonce(),
		Command: ex.Request.GetCommand(), Cwd: ex.Request.GetCwd(), Env: ex.Request.GetEnvOverrides(),
		LogLimitBytes: c.logLimitOf(ex.SandboxID, s), LogLimitAction: logLimitAction(spec, s), CancelGraceMillis: s.CancelGrace.Milliseconds(),
	}
	if _, _, agent := agentstate.OfExec(ex.ID); agent {
		// What an agent says is its conversation: nothing of it is dropped. The next process has a log of its own.
		r.Inbox, r.LogLimitAction, r.OutboxLimitBytes = true, execjournal.LogLimitKill, r.LogLimitBytes
		r.LogLimitBytes = s.LogLimit
	}
	return r
}

func logLimitAction(spec *agboxv1.CreateSpec, s Settings) string {
	switch {
	case spec.GetOnLogLimit() != "":
		return spec.GetOnLogLimit()
	case s.KillAtLogLimit:
		return execjournal.LogLimitKill
	}
	return execjournal.LogLimitDrop
}

func execRecord(ex store.Exec, rec plan.Record) plan.ExecRecord {
	return plan.ExecRecord{
		CancelRequested: ex.Desired.GetCancelRequestedAt() != 0,
		SandboxRuns:     rec.Standing == plan.Live && runs(rec),
		SandboxWaits: rec.Standing == plan.Live && rec.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED &&
			(rec.Desired == storev1.RunState_RUN_STATE_PAUSE || rec.Desired == storev1.RunState_RUN_STATE_RUN),
		TakenByDeath: plan.IsDeath(rec.Reason),
		SandboxEnding: rec.Standing == plan.Gone || rec.Standing == plan.Unswept || rec.Desired == storev1.RunState_RUN_STATE_STOP ||
			rec.Desired == storev1.RunState_RUN_STATE_DELETE,
	}
}

// endOf turns an outcome, or the journal where the command ended by itself, into the terminal record.
func endOf(o plan.Outcome, j execjournal.Journal, want plan.ExecRecord) *storev1.ExecEnd {
	end := &storev1.ExecEnd{State: int32(o.State), ErrorCode: o.Code, ErrorMessage: o.Message, StartedAt: j.StartedAtNanos}
	if o.State != agboxv1.ExecState_EXEC_STATE_UNSPECIFIED {
		return end
	}
	end.ExitCode, end.EndedAt, end.OomKilled, end.OomKills = int32(j.ExitCode), j.EndedAtNanos, j.OOM, j.OOMKills
	end.StdoutDroppedBytes, end.StderrDroppedBytes = j.StdoutDroppedBytes, j.StderrDroppedBytes
	fail := func(code, message string) {
		end.State, end.ErrorCode, end.ErrorMessage = int32(agboxv1.ExecState_EXEC_STATE_FAILED), code, message
	}
	switch {
	case j.ErrorCode != "":
		fail(plan.CodeExecStartFailed, j.Error)
	case j.Cancelled, j.Stopped && (want.SandboxEnding || want.CancelRequested):
		end.State = int32(agboxv1.ExecState_EXEC_STATE_CANCELLED)
	case j.LogLimit:
		fail(plan.CodeExecLogLimit, "the command was ended: its output reached artifacts.exec_log_max_bytes, or its sandbox artifacts.sandbox_max_bytes, and on_log_limit is kill"+plan.Meanwhile(j.OOMKills, j.OOMLimitBytes))
	case j.ExitCode == 0:
		end.State = int32(agboxv1.ExecState_EXEC_STATE_FINISHED)
	default:
		fail(plan.CodeExecRunFailed, runFailure(j))
	}
	return end
}

func runFailure(j execjournal.Journal) string {
	switch {
	case j.OOM:
		return plan.OutOfMemory(j.OOMLimitBytes)
	case j.Stopped:
		return "the command was ended: its container was stopped from outside, or the main process ended" + plan.Meanwhile(j.OOMKills, j.OOMLimitBytes)
	case j.Signal != 0:
		return fmt.Sprintf("the command was ended by signal %d", j.Signal) + plan.Meanwhile(j.OOMKills, j.OOMLimitBytes)
	}
	return fmt.Sprintf("the command exited with code %d", j.ExitCode) + plan.Meanwhile(j.OOMKills, j.OOMLimitBytes)
}
