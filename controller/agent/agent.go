// Package agent reconciles agents: it starts and ends their processes, delivers their prompts, and records their output. A pass over one
// agent observes it, decides one step (package agentplan), runs that step and reports. It needs the store and files, never the engine: the
// sandbox's state holds what the engine knows. A Drainer parks agents before the daemon ends.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/controller/scratch"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// Options are the dependencies of a Reconciler.
type Options struct {
	Store Store
	Files Files
	Clock *clock.Clock
	// Sandbox returns the record of a sandbox, as the passes over that sandbox use it.
	Sandbox func(ctx context.Context, id string) (plan.Record, store.Sandbox, error)
	// InDoubt reports whether the last observation did not find a sandbox in the engine, and its absence is not proven yet.
	InDoubt func(sandboxID string) bool
	// Sessions keeps copies of the sessions of agents' programs. Nil: there are none.
	Sessions Sessions
	// Queue is the queue of agents.
	Queue *queue.Loop
	// EnqueueSandbox adds the key of a sandbox.
	EnqueueSandbox func(sandboxID string)
	// Limits returns the limits of a command that runs in a sandbox for an agent.
	Limits func(sandboxID string) plan.ExecLimits
	// NoRoom returns why the disk is full, in one sentence, or "". It must not block.
	NoRoom func() string
	// Watch calls notify whenever an agent may have printed something, until ctx ends; see Files.AddAgentWatch. An empty execID means any
	// agent of the sandbox, both empty any agent. Nil: agents are observed only when another source adds their key.
	Watch func(ctx context.Context, notify func(sandboxID, execID string)) error

	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Reconciler makes passes over agents. Its memory is derived state.
type Reconciler struct {
	cfg      Options
	observer Observer
	scratch  *scratch.Pad[memory]
	copies   *queue.Operations[agentplan.Kind]
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	s := scratch.New[memory]()
	return &Reconciler{
		cfg: o, scratch: s, copies: queue.NewOperations(o.Queue.Add, func(agentplan.Kind) bool { return false }),
		observer: Observer{sessions: o.Sessions != nil, store: o.Store, files: o.Files, clock: o.Clock, sandbox: o.Sandbox, inDoubt: o.InDoubt, memory: s.Get},
	}
}

// Wait returns when no session is being copied. The context of the passes must have ended.
func (r *Reconciler) Wait() { r.copies.Wait() }

// Observer returns the read-only part of the Reconciler.
func (r *Reconciler) Observer() *Observer { return &r.observer }

// Reconcile makes one pass over one agent.
func (r *Reconciler) Reconcile(ctx context.Context, id string) (queue.Result, error) {
	at := r.cfg.Clock.Read()
	a, err := r.cfg.Store.Agent(ctx, id)
	if errdefs.IsNotFound(err) {
		r.scratch.Forget(id)
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, fmt.Errorf("load agent: %w", err)
	}
	if a.Corrupt {
		r.setStatus(id, "its stored record does not decode, so it is left alone; see the daemon's log")
		return queue.Result{}, nil
	}
	if r.cfg.Store.RebuildPending() {
		r.setStatus(id, message.RecordsAway)
		return queue.Result{}, nil
	}
	r.countTransitions(ctx, a)
	p, err := r.observe(ctx, a, at)
	if err != nil {
		r.setStatus(id, retrying(err))
		return queue.Result{}, fmt.Errorf("observe agent: %w", err)
	}
	decision := p.Plan()
	if why := r.cfg.NoRoom(); why != "" && decision.WaitsForRoom(recordOf(a, at), p.World) {
		r.setStatus(id, why)
		return queue.Result{Next: roomRetry}, nil
	}
	r.setStatus(id, decision.Waiting)
	if decision.Kind == agentplan.Adopt {
		r.verify(id) // before the adoption is recorded: its commit adds the key
	}
	if err := p.act(ctx, decision); err != nil {
		if errdefs.IsAborted(err) { // a newer state has its own pass, unless it is the state of the sandbox to move to
			return queue.Result{Next: abortedRetry}, nil
		}
		r.setStatus(id, retrying(err))
		return queue.Result{}, fmt.Errorf("%s: %w", decision.Kind, err)
	}
	if decision.Kind == agentplan.Read || decision.Kind == agentplan.Deliver || decision.Kind == agentplan.Adopt {
		r.cfg.Queue.Add(id) // the next pass decides what follows, even if nothing was recorded
		return queue.Result{}, nil
	}
	r.verify(id)
	return queue.Result{Next: decision.Next}, nil
}

const (
	// roomRetry is the requeue delay of an agent that waits for disk space.
	roomRetry = 5 * time.Second
	// abortedRetry is the requeue delay after a pass whose agent had changed its state meanwhile: if the sandbox that it was to move to is
	// gone, no commit adds its key.
	abortedRetry = time.Second
)

func retrying(err error) string { return "retrying: " + message.Of(err) }

// recordOf returns the part of an agent's record that decisions depend on.
func recordOf(a store.Agent, at clock.Reading) agentplan.Record {
	return agentplan.Record{
		Run: a.Desired.GetRun(), State: a.Status.GetState(),
		Attempts: a.Status.GetAttempts(), LastStart: at.Began(clock.FromNanos(a.Status.GetLastStartAt())),
		ReadyAt: clock.FromNanos(a.Status.GetReadyAt()), ChangedAt: clock.FromNanos(a.Status.GetStateChangedAt()),
		NeedsAttention: a.Status.GetNeedsAttention(), Parked: a.Status.GetParked(),
		ReadyIsProcess: a.Spec.GetReady() == "process", Restart: plan.RestartPolicy(a.Spec.GetRestartPolicy()),
		StartTimeout: startTimeout(a.Spec), Queued: a.Queued > 0,
		Nudged: wasNudged(a) || endedEarly(a), Interrupted: interrupted(a), Resumes: a.Status.GetRung() == agboxv1.AgentRung_AGENT_RUNG_NATIVE,
	}
}

// defaultStartTimeout is part of the contract.
const defaultStartTimeout = 60 * time.Second

func startTimeout(spec *agboxv1.AgentSpec) time.Duration {
	if t := spec.GetStartTimeout(); t != nil {
		return t.AsDuration()
	}
	return defaultStartTimeout
}

// interrupted reports whether a client or a drain requested the end of the present turn.
func interrupted(a store.Agent) bool {
	return a.Status.GetPromptId() != "" && a.Desired.GetInterruptPromptId() == a.Status.GetPromptId()
}

// Status returns in one sentence what an agent waits for. unverified: no pass has judged it since the daemon started.
func (r *Reconciler) Status(agentID string) (line string, unverified bool) {
	s := r.scratch.Get(agentID)
	return s.status, !s.verified
}

func (r *Reconciler) setStatus(id, line string) {
	var changed bool
	r.scratch.Change(id, func(s *memory) { changed, s.status = s.status != line, line })
	if changed {
		r.cfg.Store.NoteAgent(id)
	}
}

// verify records that a pass has judged an agent.
func (r *Reconciler) verify(id string) {
	var changed bool
	r.scratch.Change(id, func(s *memory) { changed, s.verified = !s.verified, true })
	if changed {
		r.cfg.Store.NoteAgent(id)
	}
}

// Reader is the part of the store that an Observer reads.
type Reader interface {
	InstanceID() string
	Agent(ctx context.Context, id string) (store.Agent, error)
	AgentsOf(sandboxID string) []string
	AgentPosition(ctx context.Context, id string) (*storev1.AgentPosition, error)
	AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error)
	ClaimedPrompt(ctx context.Context, id string) (*storev1.AgentPrompt, error)
	Destination(id string) string
	Drain() *storev1.DrainRecord
	Exec(ctx context.Context, execID string) (store.Exec, error)
}

// Store is the part of the store that a Reconciler uses.
type Store interface {
	Reader
	LiveAgentIDs() []string
	RebuildPending() bool
	Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error)
	TransitionAgent(ctx context.Context, id string, t store.Transition) (store.Agent, error)
	ClaimPrompt(ctx context.Context, id string, version uint64, c store.Claim) (store.Agent, *storev1.AgentPrompt, error)
	Ingest(ctx context.Context, id string, incarnation uint64, from, to *storev1.AgentPosition, out []store.AgentOutput) error
	MoveAgent(ctx context.Context, id string, version uint64) error
	AdoptAgent(ctx context.Context, id string, incarnation uint64) error
	RemoveAgent(ctx context.Context, id string) error
	RecordSession(ctx context.Context, id string, incarnation uint64, rec *storev1.AgentSessionRecord) error
	RecordSessionRestored(ctx context.Context, id, sandboxID, problem string) error
	RequestCancel(ctx context.Context, execID string) (bool, error)
	RequestInterruptToSave(ctx context.Context, id string) (bool, error)
	RequestNudge(ctx context.Context, id string) (bool, error)
	NoteAgent(id string)
}

// DrainStore is the part of the store that a Drainer uses beside that of its Reconciler.
type DrainStore interface {
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	StartDrain(ctx context.Context, o store.DrainOptions) (*storev1.DrainRecord, error)
	SetDrainPhase(ctx context.Context, of *storev1.DrainRecord, phase agboxv1.DrainPhase) (bool, error)
	WithdrawDrain(ctx context.Context) (bool, error)
}

// FileReader is the part of the files of processes that an Observer reads.
type FileReader interface {
	Status(sandboxID, execID, nonce string) (execjournal.Status, error)
	Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error)
	SecretValues(sandboxID, service string) map[string]string
	InboxSize(sandboxID, execID string) (int64, error)
	Terminated(sandboxID string) (time.Time, error)
	ReadLines(sandboxID, execID string, src execjournal.Source, from int64, maxBytes int, ended bool) (lines []execjournal.Line, next int64, err error)
}

// Files are the files by which the daemon and the processes of agents communicate: *execjournal.Dir. They need no engine.
type Files interface {
	FileReader
	AppendInbox(sandboxID, execID string, offset int64, data []byte) (size int64, err error)
	CloseInbox(sandboxID, execID string) error
	AddAgentWatch(sandboxID, execID string) error
	DropAgentWatch(sandboxID, execID string)
	Start(sandboxID string, r execjournal.Request) error
	Cancel(sandboxID, execID, nonce string) error
	Close(sandboxID, execID, nonce, reason string) (execjournal.Status, error)
	Forget(sandboxID, execID string) error
}
