// Package enginelink holds the connection to the engine and knows whether its answers can be trusted: it answers, its events are subscribed
// to, and it is the engine that holds this daemon's objects. Checker is the part that only reads.
package enginelink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/backoff"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/wait"
)

// probeInterval is the time between two probes of a connected engine.
const probeInterval = 5 * time.Second

// reconnect is the delay between connection attempts.
var reconnect = backoff.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}

// Store is the part of the store that the link uses.
type Store interface {
	Records
	SetMarkerWritten(ctx context.Context) error
	SetEngineIdentity(ctx context.Context, id *storev1.EngineIdentity) error
}

// Engine is the part of the engine that the link uses.
type Engine interface {
	Questions
	Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error
	CreateVolume(ctx context.Context, name string, labels map[string]string) error
}

// Options are the dependencies of a Link. All are required.
type Options struct {
	Store   Store
	Engine  Engine
	Objects owned.Objects
	// Dirs lists the directories of sandboxes on the host.
	Dirs func() ([]execjournal.SandboxDir, error)
	// BootID is the kernel's boot ID.
	BootID string

	// Event is called with each event about one of our objects. It must not block.
	Event func(dockerx.Event)
	// Now reads the clock.
	Now func() time.Time
	// Returned is called when the engine is usable again, or has another life than before.
	Returned func()
	// StreamEnded is called when a stream of events has ended, or continues in another life of the engine.
	StreamEnded func()

	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Link holds the subscription to the engine's events and knows whether the engine is usable. Create one with New.
type Link struct {
	Checker
	o      Options
	wakeup chan struct{}

	mu    sync.RWMutex
	state State
	// seen is the time of the last event; zero before the first.
	seen time.Time
}

// State is the link's knowledge of the engine.
type State struct {
	// Problem says in one sentence why the engine's state is unknown; empty while the engine is usable.
	Problem string
	// Since is when the first of consecutive problems started. Valid while there is a problem.
	Since time.Time
	// Usable is when the last problem ended; zero: before the engine's first answer.
	Usable time.Time
	// Info is the engine's last info, also while there is a problem; the zero value before its first answer.
	Info dockerx.Info
}

// New returns a link that is not connected until Run.
func New(o Options) *Link {
	return &Link{
		Checker: Checker{store: o.Store, engine: o.Engine, objects: o.Objects, dirs: o.Dirs, bootID: o.BootID},
		o:       o, wakeup: make(chan struct{}, 1),
		state: State{Problem: "connecting to the engine", Since: time.Now()},
	}
}

// Problem returns in one sentence why the engine's state is unknown; empty while the engine is usable.
func (l *Link) Problem() string { return l.State().Problem }

// Warning returns in one sentence what is dangerous about the engine's configuration; empty: nothing.
func (l *Link) Warning() string {
	if s := l.State(); s.Problem == "" && !s.Info.LiveRestore {
		return "the engine runs without live-restore: its death ends all sandboxes until they are restarted"
	}
	return ""
}

// Life returns the present life of the engine, or the problem because of which its state is unknown and run may be outdated.
func (l *Link) Life() (run *storev1.EngineRun, problem string) {
	s := l.State()
	return l.RunOf(s.Info), s.Problem
}

// Info returns the engine's last info, as State has it.
func (l *Link) Info() dockerx.Info { return l.State().Info }

// UsableSince returns since when the engine has been usable; zero: it never was.
func (l *Link) UsableSince() time.Time { return l.State().Usable }

// State returns the present state of the link.
func (l *Link) State() State {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state
}

// answered records the engine's info: it is usable.
func (l *Link) answered(info dockerx.Info) {
	l.set(func(s *State) {
		if s.Problem != "" {
			s.Usable = l.o.Now()
		}
		s.Problem, s.Info = "", info
	})
}

// failed records a problem with the engine.
func (l *Link) failed(what string, err error) {
	problem := fmt.Sprintf("the Docker engine %s: %v", what, err)
	if _, moved := errors.AsType[*MovedError](err); moved || errors.Is(err, ErrForeign) {
		problem = err.Error()
	}
	l.set(func(s *State) {
		if s.Problem == "" {
			s.Since = time.Now()
		}
		s.Problem = problem
	})
}

func (l *Link) set(change func(*State)) {
	l.mu.Lock()
	before := l.state
	change(&l.state)
	now := l.state
	l.mu.Unlock()
	l.o.Metrics.EngineUp(now.Problem == "")
	switch {
	case now.Problem == before.Problem:
	case now.Problem != "":
		l.o.Logger.Warn("engine state unknown", "reason", now.Problem)
	default:
		l.o.Logger.Info("engine is back", "engine_version", now.Info.Version, "live_restore", now.Info.LiveRestore)
	}
}

// Run keeps a session with the engine until ctx ends.
func (l *Link) Run(ctx context.Context) {
	failures := uint32(0)
	for ctx.Err() == nil {
		up, err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if up {
			failures = 0
		}
		l.failed("can't be reached", err)
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(reconnect.After(failures)):
		case <-l.wakeup:
		}
	}
}

// session subscribes, then checks that the engine is ours, then reports it as usable. It subscribes first so that no change falls between
// the first list and the first event.
func (l *Link) session(ctx context.Context) (up bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.o.StreamEnded()
	ready := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
		if err := l.identify(ctx); err != nil {
			cancel(err)
			return
		}
		up = true
		l.o.Returned()
		l.probe(ctx)
	})
	err = l.o.Engine.Events(ctx, l.since(), l.o.Objects.EventLabels(), func() { close(ready) }, l.handle)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(err)
	wg.Wait()
	return up, err
}

func (l *Link) handle(e dockerx.Event) {
	l.mu.Lock()
	l.seen = e.Time
	l.mu.Unlock()
	if l.o.Objects.Has(e.Labels, e.ID) {
		l.o.Event(e)
	}
}

// overlap is how far before the last event, or before the start, a subscription starts. The engine sends the event of a container's end
// before its lists show the end: the first list may miss an end just before the subscription, so its event must be sent again. An event
// that is sent twice costs a pass.
const overlap = 10 * time.Second

func (l *Link) since() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.seen.IsZero() {
		return time.Now().Add(-overlap)
	}
	return l.seen.Add(-overlap)
}

// probe reads the engine's info every probeInterval: an engine that hangs keeps its stream of events open.
func (l *Link) probe(ctx context.Context) {
	for wait.For(ctx, probeInterval) == nil {
		info, err := l.o.Engine.Info(ctx)
		if err == nil {
			err = l.recordIdentity(ctx, info)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.failed("does not answer", err)
			continue
		}
		before := l.State()
		restarted := before.Info.Run != info.Run
		if restarted { // behind a proxy a stream outlives its engine
			l.o.StreamEnded()
		}
		if l.answered(info); restarted || before.Problem != "" {
			l.o.Returned()
		}
	}
}

// identify reads the engine's life, which is that of the open stream, and checks that the engine is ours.
func (l *Link) identify(ctx context.Context) error {
	info, err := l.o.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if err := l.CheckMarker(ctx); err != nil {
		return err
	}
	if err := l.recordIdentity(ctx, info); err != nil {
		return err
	}
	l.answered(info)
	return nil
}

// CheckMarker calls Checker.CheckMarker. It also marks an engine that was found to be ours in another way.
func (l *Link) CheckMarker(ctx context.Context) error {
	exists, recorded, err := l.marker(ctx)
	switch {
	case err != nil || exists && recorded:
		return err
	case exists:
		return l.o.Store.SetMarkerWritten(ctx)
	}
	return l.mark(ctx, plan.BecauseEngineMarked)
}

// CheckSame calls Checker.CheckSame. It also records a new identity and marks the engine; see CheckMarker.
func (l *Link) CheckSame(ctx context.Context, run *storev1.EngineRun) error {
	info, err := l.unchanged(ctx, run)
	if err != nil {
		return err
	}
	if err := l.recordIdentity(ctx, info); err != nil {
		return err
	}
	return l.CheckMarker(ctx)
}

// recordIdentity records the engine's storage driver and data root if they can be trusted; see Checker.identity.
func (l *Link) recordIdentity(ctx context.Context, info dockerx.Info) error {
	was, is, err := l.identity(ctx, info)
	if err != nil || is == nil {
		return err
	}
	if was != nil {
		l.o.Logger.Warn("the engine moved its containers, and lists all of them", "storage_driver", info.Driver,
			"data_root", info.DataRoot)
	}
	return l.o.Store.SetEngineIdentity(ctx, is)
}

// markEngine is the only action on the engine that is not a step of a plan.
const markEngine plan.Kind = "mark-engine"

func (l *Link) mark(ctx context.Context, because plan.Reason) error {
	instance, begun := l.o.Store.InstanceID(), time.Now()
	name, labels := naming.MarkerVolume(instance), map[string]string{naming.Instance: instance, naming.Marker: "engine"}
	err := l.o.Engine.CreateVolume(ctx, name, labels)
	auditlog.Write(l.o.Logger, "", plan.Step{Kind: markEngine, Reason: because}, name, time.Since(begun), err)
	if err != nil {
		return fmt.Errorf("mark the engine: %w", err)
	}
	return l.o.Store.SetMarkerWritten(ctx)
}

// Confirm marks the present engine as ours, because an operator confirmed it, and returns its info.
func (l *Link) Confirm(ctx context.Context) (dockerx.Info, error) {
	info, err := l.o.Engine.Info(ctx)
	if err != nil {
		return info, err
	}
	if err := l.mark(ctx, plan.BecauseEngineConfirmed); err != nil {
		return info, err
	}
	is := &storev1.EngineIdentity{StorageDriver: info.Driver, DataRoot: info.DataRoot}
	if err := l.o.Store.SetEngineIdentity(ctx, is); err != nil {
		return info, err
	}
	l.o.Logger.Warn("an operator confirmed the engine", "engine_id", info.EngineID)
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
	return info, nil
}
