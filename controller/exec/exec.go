// Package exec reconciles execs: it requests and cancels commands in sandboxes and records their ends. A pass over one exec reads its
// journal, decides (package plan) and acts. It needs the store and the files of the exec, never the engine.
package exec

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/execend"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Options are the dependencies of a Reconciler.
type Options struct {
	Store Store
	Files Files
	// Sandbox returns the record of a sandbox, as the passes over that sandbox use it.
	Sandbox func(ctx context.Context, id string) (plan.Record, store.Sandbox, error)
	// TurnLeft returns how long the turn of an agent that an exec is in may last although its sandbox is ending; 0: no longer, or the exec
	// is not a process of an agent.
	TurnLeft func(ctx context.Context, execID string, rec plan.Record) time.Duration
	// Limits returns the limits of an exec of a sandbox that starts now.
	Limits func(sandboxID string) plan.ExecLimits
	// IdleTTL returns how long a sandbox may be idle before it is stopped; 0: forever.
	IdleTTL func(sb store.Sandbox) time.Duration
	// MakeRoom frees disk space if an error of a step that ends an exec says that there was none, and returns the error. The pass is retried
	// with backoff: with an exhausted quota on btrfs, even the forms of a cancel and a fence that need no block fail. It must not block for long.
	MakeRoom func(error) error
	// RefuseNew has new execs refused if an error of a start says that there was no disk space, and returns the error. The start is retried with
	// backoff. It may block while the disks are read.
	RefuseNew func(error) error
	// HasWriter reports whether a client of this daemon writes the standard input of an exec. It must not block.
	HasWriter func(execID string) bool
	// BootID is the kernel's boot ID.
	BootID string
	// Now is the wall clock.
	Now func() time.Time
	// Queue is the queue of execs, Sandboxes that of sandboxes.
	Queue, Sandboxes *queue.Loop
	// Watch calls notify whenever the journal of an exec may have changed, until ctx ends. An empty execID means any exec of the sandbox,
	// both empty any exec. Nil: execs are observed only when another source adds their key.
	Watch func(ctx context.Context, notify func(sandboxID, execID string)) error
	// Changed is called when the journal of an exec may have changed; the exec may be internal, such as a hook. An empty ID: any of the sandbox.
	Changed func(sandboxID, execID string)

	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Store is the part of the store that a Reconciler uses.
type Store interface {
	Exec(ctx context.Context, execID string) (store.Exec, error)
	ActiveExecs(sandboxID string) []string
	EndExec(ctx context.Context, execID string, end *storev1.ExecEnd) error
	DetachStdin(ctx context.Context, execID string, keep bool) error
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	LiveIDs() []string
}

// Files are the files of execs: *execjournal.Dir. They need no engine.
type Files interface {
	AddWatch(sandboxID string) error
	Status(sandboxID, execID, nonce string) (execjournal.Status, error)
	Start(sandboxID string, r execjournal.Request) error
	Cancel(sandboxID, execID, nonce string) error
	Close(sandboxID, execID, nonce, reason string) (execjournal.Status, error)
	Forget(sandboxID, execID string) error
	CloseInbox(sandboxID, execID string) error
	HangUp(sandboxID, execID string) error
}

// Reconciler makes passes over execs. It keeps nothing in memory.
type Reconciler struct{ cfg Options }

// New returns a Reconciler.
func New(o Options) *Reconciler { return &Reconciler{cfg: o} }

// Reconcile makes one pass over one exec.
func (r *Reconciler) Reconcile(ctx context.Context, id string) (queue.Result, error) {
	ex, err := r.cfg.Store.Exec(ctx, id)
	if errdefs.IsNotFound(err) || err == nil && ex.End != nil {
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, fmt.Errorf("load exec: %w", err)
	}
	rec, sb, err := r.cfg.Sandbox(ctx, ex.SandboxID)
	if err != nil {
		return queue.Result{}, err
	}
	status, err := r.cfg.Files.Status(ex.SandboxID, ex.ID, ex.Desired.GetNonce())
	if err != nil {
		return queue.Result{}, fmt.Errorf("read the journal: %w", err)
	}
	return r.act(ctx, ex, rec, sb, status)
}

func (r *Reconciler) act(ctx context.Context, ex store.Exec, rec plan.Record, sb store.Sandbox, status execjournal.Status) (queue.Result, error) {
	want := r.recordOf(ex, rec)
	want.TurnLeft = r.cfg.TurnLeft(ctx, ex.ID, rec)
	p := plan.DecideExec(want, status.Phase)
	if p.Action == plan.ExecClose {
		var err error
		status, err = r.cfg.Files.Close(ex.SandboxID, ex.ID, ex.Desired.GetNonce(), "not wanted any more")
		if err != nil {
			return queue.Result{}, fmt.Errorf("close the fence: %w", r.cfg.MakeRoom(err))
		}
		p = plan.DecideExec(want, status.Phase) // the first to create the journal has decided
	}
	switch p.Action {
	case plan.ExecRequest:
		return queue.Result{}, r.cfg.RefuseNew(r.cfg.Files.Start(ex.SandboxID, r.request(ex, sb.Spec)))
	case plan.ExecCancel:
		return queue.Result{Next: p.Next}, r.cfg.MakeRoom(r.cfg.Files.Cancel(ex.SandboxID, ex.ID, ex.Desired.GetNonce()))
	case plan.ExecDetachStdin:
		return queue.Result{}, r.cfg.Store.DetachStdin(ctx, ex.ID, false)
	case plan.ExecEndStdin:
		if ex.Request.GetStdin().GetWhenGone() == validate.StdinHangup {
			return queue.Result{}, r.cfg.MakeRoom(r.cfg.Files.HangUp(ex.SandboxID, ex.ID))
		}
		return queue.Result{}, r.cfg.MakeRoom(r.cfg.Files.CloseInbox(ex.SandboxID, ex.ID))
	case plan.ExecRecordEnd:
		end := p.End
		if end == nil {
			end = execend.Of(status.Journal, want.SandboxEnding || want.CancelRequested)
		}
		end.StartedAt = status.Journal.StartedAtNanos
		return queue.Result{}, r.recordEnd(ctx, ex, end)
	}
	return queue.Result{Next: p.Next}, nil
}

// recordEnd removes the request before it records the end: after that no pass over the exec does anything.
func (r *Reconciler) recordEnd(ctx context.Context, ex store.Exec, end *storev1.ExecEnd) error {
	if err := r.cfg.Files.Forget(ex.SandboxID, ex.ID); err != nil {
		return fmt.Errorf("remove the request: %w", err)
	}
	if err := r.cfg.Store.EndExec(ctx, ex.ID, end); err != nil {
		return fmt.Errorf("record the end: %w", err)
	}
	r.cfg.Metrics.LogDropped(end.GetStdoutDroppedBytes() + end.GetStderrDroppedBytes())
	if _, _, agent := execid.OfAgent(ex.ID); !agent {
		r.cfg.Metrics.ExecEnded(endState(end), ranFor(end))
	}
	r.cfg.Logger.Info("exec ended", "sandbox_id", ex.SandboxID, "exec_id", ex.ID,
		"state", agboxv1.ExecState(end.GetState()).String(), "error_code", end.GetErrorCode())
	r.enqueueSandbox(ctx, ex.SandboxID)
	return nil
}

// EndStates are the states in which execs end, as metrics name them.
func EndStates() []string { return slices.Sorted(maps.Values(endStates)) }

var endStates = map[agboxv1.ExecState]string{
	agboxv1.ExecState_EXEC_STATE_FINISHED: "finished", agboxv1.ExecState_EXEC_STATE_FAILED: "failed", agboxv1.ExecState_EXEC_STATE_CANCELLED: "cancelled",
}

func endState(end *storev1.ExecEnd) string { return endStates[agboxv1.ExecState(end.GetState())] }

// ranFor returns the run time of an exec; 0: it had not started.
func ranFor(end *storev1.ExecEnd) time.Duration {
	if end.GetStartedAt() == 0 {
		return 0
	}
	return time.Duration(max(end.GetEndedAt()-end.GetStartedAt(), 1))
}

// enqueueSandbox enqueues the sandbox of an ended exec: at once if a stop or a delete may wait for the end, else for the time when the idle
// TTL may have passed. So the end of an exec of a running sandbox costs no pass over the sandbox now.
func (r *Reconciler) enqueueSandbox(ctx context.Context, id string) {
	sb, err := r.cfg.Store.Sandbox(ctx, id)
	if err != nil || sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY || sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN {
		r.cfg.Sandboxes.Add(id)
	} else if ttl := r.cfg.IdleTTL(sb); ttl > 0 && len(sb.ActiveExecs) == 0 {
		r.cfg.Sandboxes.AddAfter(id, ttl)
	}
}

func (r *Reconciler) request(ex store.Exec, spec *agboxv1.CreateSpec) execjournal.Request {
	l := r.cfg.Limits(ex.SandboxID)
	q := execjournal.Request{
		Version: execjournal.Version, ExecID: ex.ID, Nonce: ex.Desired.GetNonce(),
		Command: ex.Request.GetCommand(), Cwd: ex.Request.GetCwd(), Env: ex.Request.GetEnvOverrides(), User: ex.Request.GetUser(),
		TimeoutMillis: ex.Request.GetTimeout().AsDuration().Milliseconds(),
		Stdin:         ex.Request.GetStdin() != nil, Live: ex.Request.GetLiveOutput(),
		BootID: ex.Desired.GetBootId(), LogLimitBytes: l.LogBytes, LogLimitAction: logLimitAction(spec, l.KillAtLogLimit), CancelGraceMillis: l.CancelGrace.Milliseconds(),
	}
	if size := ex.Request.GetTerminal(); size != nil {
		q.Terminal = &execjournal.Terminal{Columns: size.GetColumns(), Rows: size.GetRows()}
	}
	if _, _, agent := execid.OfAgent(ex.ID); agent {
		// The output of an agent is its conversation: none of it is dropped. The next process has its own log.
		q.Inbox, q.LogLimitAction, q.OutboxLimitBytes = true, execjournal.LogLimitKill, q.LogLimitBytes
		q.LogLimitBytes = l.AgentLogBytes
	}
	return q
}

func logLimitAction(spec *agboxv1.CreateSpec, kill bool) string {
	action := execjournal.LogLimitDrop
	if kill {
		action = execjournal.LogLimitKill
	}
	return cmp.Or(spec.GetOnLogLimit(), action)
}

func (r *Reconciler) recordOf(ex store.Exec, rec plan.Record) plan.ExecRecord {
	return plan.ExecRecord{
		StdinAbandoned: ex.Desired.GetStdinAttached() && !r.cfg.HasWriter(ex.ID), StdinLeft: r.stdinLeft(ex),
		OtherBoot:       ex.Desired.GetBootId() != "" && ex.Desired.GetBootId() != r.cfg.BootID,
		CancelRequested: ex.Desired.GetCancelRequestedAt() != 0,
		SandboxRuns:     rec.Standing == plan.Live && rec.Runs(),
		SandboxWaits: rec.Standing == plan.Live && rec.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED &&
			(rec.Desired == storev1.RunState_RUN_STATE_PAUSE || rec.Desired == storev1.RunState_RUN_STATE_RUN),
		TakenByDeath: plan.IsDeath(rec.Reason),
		SandboxEnding: rec.Standing == plan.Gone || rec.Standing == plan.Unswept || rec.Desired == storev1.RunState_RUN_STATE_STOP ||
			rec.Desired == storev1.RunState_RUN_STATE_DELETE,
	}
}

// stdinLeft returns how long the standard input of an exec stays open without a writer; nil if no deadline runs.
func (r *Reconciler) stdinLeft(ex store.Exec) *time.Duration {
	if ex.Desired.GetStdinDeadline() == 0 {
		return nil
	}
	left := time.Unix(0, ex.Desired.GetStdinDeadline()).Sub(r.cfg.Now())
	return &left
}

// WatchJournals watches the journals that an earlier daemon left.
func (r *Reconciler) WatchJournals() {
	for _, id := range r.cfg.Store.LiveIDs() {
		if err := r.cfg.Files.AddWatch(id); err != nil && !errdefs.IsNotFound(err) {
			r.cfg.Logger.Warn("exec journals are not watched; only resyncs observe them", "sandbox_id", id, "err", err)
		}
	}
}

// EnqueueAll enqueues all execs without a recorded end.
func (r *Reconciler) EnqueueAll() { r.EnqueueOf("") }

// EnqueueOf enqueues the execs of a sandbox without a recorded end.
func (r *Reconciler) EnqueueOf(sandboxID string) {
	for _, id := range r.cfg.Store.ActiveExecs(sandboxID) {
		r.cfg.Queue.Add(id)
	}
}

// ForgetFailures resets the backoff of all execs without a recorded end.
func (r *Reconciler) ForgetFailures() {
	for _, id := range r.cfg.Store.ActiveExecs("") {
		r.cfg.Queue.Forget(id)
	}
}

// watchRetry is the delay before a lost watch is set up again.
const watchRetry = 5 * time.Second

// Watch enqueues execs whose journals change, until ctx ends. Without a watch, the next resync enqueues them.
func (r *Reconciler) Watch(ctx context.Context) {
	queue.Watch(ctx, r.cfg.Watch, r.changed, func(err error) {
		r.cfg.Logger.Error("exec journals are not watched", "err", err)
		if wait.For(ctx, watchRetry) == nil {
			r.EnqueueAll()
		}
	})
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
	if sandboxID != "" {
		r.cfg.Changed(sandboxID, execID)
	}
}
