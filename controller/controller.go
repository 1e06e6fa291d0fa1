// Package controller reconciles Docker with the desired state in the store. Keys are IDs in three rate-limited queues, one each for
// sandboxes, execs and agents, so that an exec never waits behind a stop or a pull of its sandbox. Commits of the store, engine events,
// timers and a periodic resync only add keys; a pass observes, decides (package plan), acts and reports. Recovery after a restart is the
// first resync and no other code.
package controller

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/absence"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/disklimit"
	"github.com/agbox/agbox/controller/enginelink"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/controller/quota"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/controller/secret"
	"github.com/agbox/agbox/controller/snapshot"
	"github.com/agbox/agbox/controller/template"
	"github.com/agbox/agbox/controller/usage"
	"github.com/agbox/agbox/controller/volume"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/cabundle"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// Config holds the dependencies and settings of a Controller.
type Config struct {
	Store  Store
	Engine Engine
	Execs  Execs
	// WatchExecs calls notify whenever the journal of an exec may have changed, until ctx ends; see exec.Options.Watch for empty IDs. Nil:
	// execs are observed only when another source adds their key.
	WatchExecs func(ctx context.Context, notify func(sandboxID, execID string)) error
	// WatchAgents calls notify whenever an agent may have printed something, in the same way; see Execs.AddAgentWatch. Nil: agents are
	// observed only when another source adds their key.
	WatchAgents func(ctx context.Context, notify func(sandboxID, execID string)) error

	// HasWriter reports whether a client of this daemon writes the standard input of an exec. It must not block. Nil: none does.
	HasWriter func(execID string) bool

	// Drained is called when a drain is done; exit: the caller of the drain asked the daemon to exit afterwards. It is called with false
	// when a drain is withdrawn. It must not block. It may be nil.
	Drained func(exit bool)

	// NoRoom returns why the disk is full, in one sentence, or "". It must not block. Nil: the disk is never full.
	NoRoom func() string
	// RoomNow is NoRoom after the disks were read; it may block for as long. Nil: NoRoom is up to date.
	RoomNow func() string
	// MakeRoom frees disk space for a step that ends an exec, or removes files, and failed for lack of it, and has NoRoom return a reason. For the
	// start of an exec it is called only while RoomNow returns "". It must not block for long. Nil: there is none to free.
	MakeRoom func() bool

	// Builds are the files of template builds. Nil: there can be none.
	Builds *buildfiles.Dir
	// Sessions keeps copies of the sessions of agents' programs. Nil: there are none.
	Sessions agent.Sessions

	// Network is what network policies are enforced with. Its functions Recorded and Changed, and the logger, are the controller's.
	Network network.Options

	sandbox.Host
	// RefusesSecret returns why a sandbox may not have the file at a path without symbolic links, as the rest of a sentence, or "". Nil:
	// every file is allowed.
	RefusesSecret func(path string) string
	// WatchSecrets tells when the files of secrets may have changed. Nil: the daemon looks at intervals only.
	WatchSecrets secret.Watch
	// Clock reads the clocks that deadlines use; see hostclock.Read. Nil: the wall clock alone, which never jumps.
	Clock func() clockjump.Reading
	// BootID is the kernel's boot ID.
	BootID string

	// Settings apply until SetSettings.
	Settings Settings
	// ResyncInterval is the time between two full resyncs.
	ResyncInterval time.Duration
	// Workers is the number of workers of each queue.
	Workers int

	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Controller runs the loops. Create one with New; it does nothing until Run.
type Controller struct {
	*inspect.Explainer
	*inspect.Collector
	*agent.Drainer
	*volume.Keeper
	*usage.Meter

	cfg      Config
	settings atomic.Pointer[Settings]
	log      *slog.Logger
	clock    *clock.Clock
	started  time.Time

	sandboxLoop *queue.Loop
	sandboxes   *sandbox.Reconciler
	execLoop    *queue.Loop
	execs       *exec.Reconciler
	agentLoop   *queue.Loop
	agents      *agent.Reconciler
	drainLoop   *queue.Loop
	link        *enginelink.Link
	absences    *absence.Keeper
	quotas      *quota.Watcher
	disks       *disklimit.Watcher
	secrets     *secret.Keeper
	snapshots   *snapshot.Keeper
	templates   *template.Keeper
	networks    *network.Keeper
	objects     owned.Objects
	reader      *sandbox.Reader
	resyncNow   chan struct{}
}

// The names of the queues, which are metric labels.
const (
	LoopSandboxes = "sandboxes"
	LoopExecs     = "execs"
	LoopAgents    = "agents"
	LoopDrain     = "drain"
)

// Loops lists the names of all loops.
func Loops() []string { return []string{LoopSandboxes, LoopExecs, LoopAgents, LoopDrain} }

// New returns a Controller and registers its hook for the store's commits.
func New(cfg Config) *Controller {
	if cfg.NoRoom == nil {
		cfg.NoRoom = func() string { return "" }
	}
	if cfg.RoomNow == nil {
		cfg.RoomNow = cfg.NoRoom
	}
	if cfg.RefusesSecret == nil {
		cfg.RefusesSecret = func(string) string { return "" }
	}
	c := &Controller{
		cfg: cfg, log: cfg.Logger,
		resyncNow: make(chan struct{}, 1),
		objects:   owned.New(cfg.Store, cfg.Engine),
	}
	c.sandboxLoop, c.execLoop = c.newLoop(LoopSandboxes), c.newLoop(LoopExecs)
	c.agentLoop, c.drainLoop = c.newLoop(LoopAgents), c.newLoop(LoopDrain)
	c.settings.Store(&cfg.Settings)
	c.quotas = quota.New(quota.Options{
		Store: cfg.Store, Files: cfg.Execs, Quota: func() int64 { return c.inForce().SandboxQuota }, Logger: cfg.Logger,
	})
	c.secrets = secret.New(secret.Options{
		Store: cfg.Store, Files: cfg.Execs, Authority: c.certificate, Trusted: (&cabundle.Host{Logger: cfg.Logger}).Certificates,
		Refuses: cfg.RefusesSecret, Watch: cfg.WatchSecrets, Logger: cfg.Logger,
	})
	c.clock = clock.New(cfg.Clock, func() time.Duration { return c.inForce().ClockGrace }, c.clockOnRecord())
	c.started = c.clock.Now()
	c.agents = c.newAgents()
	c.Drainer = agent.NewDrainer(c.agents, cfg.Store, c.drainLoop, cfg.Drained)
	c.link = enginelink.New(enginelink.Options{
		Store: cfg.Store, Engine: cfg.Engine, Objects: c.objects, Dirs: cfg.Execs.Dirs, BootID: cfg.BootID, Now: c.clock.Now,
		Event: c.engineEvent, Returned: c.engineReturned, StreamEnded: func() { c.absences.StreamEnded() },
		Logger: cfg.Logger, Metrics: cfg.Metrics,
	})
	c.disks = disklimit.New(disklimit.Options{Store: cfg.Store, Link: c.link, Measure: cfg.Engine.MeasureContainer, Logger: cfg.Logger})
	c.absences = absence.New(absence.Options{
		Ports: absence.Ports{
			Store: cfg.Store, Engine: cfg.Engine, Objects: c.objects, Exec: cfg.Execs.Status, CheckSame: c.link.CheckSame, Logger: cfg.Logger,
			Begun:  cfg.Execs.Begun,
			Record: func(sb store.Sandbox) plan.Record { return c.reader.RecordOf(sb) },
		},
		Confirmations: cfg.Store, ReadSame: c.link.Checker.CheckSame, Enqueue: c.sandboxLoop.Add, DoubtEnded: c.agents.EnqueueOf,
	})
	c.snapshots = c.newSnapshots()
	c.templates = c.newTemplates()
	c.networks = c.newNetworks()
	c.sandboxes = c.newSandboxes()
	c.reader = c.sandboxes.Reader()
	c.execs = c.newExecs()
	c.Explainer, c.Collector, c.Keeper = c.newExplainer(), c.newCollector(), c.newVolumes()
	c.Meter = usage.New(usage.Options{
		List: cfg.Store.List, Sandbox: cfg.Store.Sandbox, Count: cfg.Store.CountByState, Read: cfg.Engine.Usage, Logger: c.log,
	})
	cfg.Store.OnCommit(c.committed)
	return c
}

func (c *Controller) newLoop(name string) *queue.Loop {
	return queue.NewLoop(queue.Options{Name: name, Workers: c.cfg.Workers, Logger: c.log, Metrics: c.cfg.Metrics})
}

// Run works until ctx ends, and returns when every goroutine of the controller has ended.
func (c *Controller) Run(ctx context.Context) {
	var wg sync.WaitGroup
	c.execs.WatchJournals()
	c.askResync()
	wg.Go(func() { c.link.Run(ctx) })
	wg.Go(func() { c.resyncLoop(ctx) })
	wg.Go(func() { c.execs.Watch(ctx) })
	wg.Go(func() {
		c.clock.Watch(ctx, clock.Watcher{Store: c.cfg.Store, Changed: c.askResync, Metrics: c.cfg.Metrics, Logger: c.log})
	})
	wg.Go(func() { c.quotas.Run(ctx) })
	wg.Go(func() { c.disks.Run(ctx) })
	wg.Go(func() { c.secrets.Run(ctx) })
	wg.Go(func() { c.networks.Run(ctx) })
	wg.Go(func() { c.sandboxLoop.Run(ctx, c.sandboxes.Reconcile) })
	wg.Go(func() { c.execLoop.Run(ctx, c.execs.Reconcile) })
	wg.Go(func() { c.agents.Watch(ctx) })
	wg.Go(func() { c.drainLoop.Run(ctx, c.ReconcileDrain) })
	wg.Go(func() { c.agentLoop.Run(ctx, c.agents.Reconcile) })
	wg.Wait()
	c.snapshots.Close()
	c.templates.Close()
	c.sandboxes.Wait()
	c.agents.Wait()
}

// EngineProblem returns in one sentence why the engine's state is unknown; empty while the engine is usable.
func (c *Controller) EngineProblem() string { return c.link.Problem() }

// Held returns the number of sandboxes that vanished together and wait for an operator.
func (c *Controller) Held() int { return c.absences.Held() }

// Vanished returns one sentence about sandboxes that vanished together and wait for an operator; empty: there are none.
func (c *Controller) Vanished() string { return c.absences.Vanished() }

// ConfirmEngine accepts the present engine as ours, and gives up the sandboxes that vanished together; see absence.Keeper.GiveUp. It waits
// up to 15 s. Errors: ErrUnavailable, and that of ctx; then the engine may be confirmed, and nothing is given up.
func (c *Controller) ConfirmEngine(ctx context.Context) (*agboxv1.ConfirmEngineResponse, error) {
	info, err := c.link.Confirm(ctx)
	if err != nil {
		return nil, err
	}
	out := &agboxv1.ConfirmEngineResponse{EngineId: info.EngineID}
	out.GivenUp, out.Undecided, err = c.absences.GiveUp(ctx, c.link.RunOf(info))
	if err != nil {
		return nil, err
	}
	return out, nil
}

// EngineWarning returns in one sentence what is dangerous about the engine's configuration; empty: nothing.
func (c *Controller) EngineWarning() string { return c.link.Warning() }

// committed enqueues the keys that a commit concerns. The end of an exec concerns its sandbox only sometimes; the exec's pass decides that.
func (c *Controller) committed(change store.Change) {
	switch {
	case change.AgentID != "":
		c.agentLoop.Add(change.AgentID)
	case change.ExecID != "":
		c.execLoop.Add(change.ExecID)
		c.agents.EnqueueExec(change.ExecID)
		return
	default:
		c.sandboxLoop.Add(change.SandboxID)
		c.execs.EnqueueOf(change.SandboxID) // also while a pass over the sandbox waits for an engine that hangs
		c.agents.EnqueueOf(change.SandboxID)
	}
	c.EnqueueDrain()
}

// ClockWarning returns in one sentence until when deadlines wait, and why; empty: they do not wait.
func (c *Controller) ClockWarning() string { return c.clock.Warning() }

// clockOnRecord returns the state of the clock that an earlier daemon recorded.
func (c *Controller) clockOnRecord() clockjump.State {
	rec, err := c.cfg.Store.Clock(context.Background())
	switch {
	case err != nil:
		c.log.Error("the record of the clock can't be read; ignoring it", "err", err)
	case rec != nil:
		return clock.StateOf(rec)
	case len(c.cfg.Store.LiveIDs()) == 0 && !c.cfg.Store.RebuildPending():
		return clockjump.State{}
	}
	return clockjump.Unrecorded()
}

// EngineRun returns the engine's present life and its info in that life, as far as known.
func (c *Controller) EngineRun() (*storev1.EngineRun, dockerx.Info) {
	s := c.link.State()
	return c.link.RunOf(s.Info), s.Info
}

// SameEngine checks with the engine that it is ours and has not restarted since EngineRun returned run: then its answers in between can be
// trusted. Errors: ErrUnavailable and others; they cannot.
func (c *Controller) SameEngine(ctx context.Context, run *storev1.EngineRun) error {
	return c.link.CheckSame(ctx, run)
}

// ResyncRebuilt picks up records that were rebuilt after the start of the daemon: it watches their
// journals and asks for a resync. It ends the waits for a pending rebuild.
func (c *Controller) ResyncRebuilt() {
	c.execs.WatchJournals()
	c.askResync()
}
