package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Bounds of the link to the engine.
const (
	// linkBackoff doubles from the first to the second while the engine can't be reached.
	linkBackoffBase = 100 * time.Millisecond
	linkBackoffMax  = 5 * time.Second
	// probeInterval is how often a silent engine is asked whether it still answers.
	probeInterval = 5 * time.Second
)

// engineLink holds the subscription to the engine's events and knows whether the engine may be judged by: it answers,
// its events are followed, and it is the one that our objects are on.
type engineLink struct {
	cfg      Config
	log      *slog.Logger
	event    func(dockerx.Event)
	returned func()
	broke    func() // a stream of events ended, or goes on under another life of the engine

	mu     sync.RWMutex
	state  linkState
	wakeup chan struct{}
	// seen is when the last event was; zero before the first.
	seen time.Time
	info dockerx.Info
}

type linkState struct {
	// problem is empty while the engine may be judged by.
	problem string
	// since is when there was the first of the problems that followed each other.
	since time.Time
	info  dockerx.Info
}

func newEngineLink(cfg Config, event func(dockerx.Event), returned, broke func()) *engineLink {
	return &engineLink{
		cfg: cfg, log: cfg.Logger, event: event, returned: returned, broke: broke,
		state: linkState{problem: "connecting to the engine", since: time.Now()}, wakeup: make(chan struct{}, 1),
	}
}

func (l *engineLink) problem() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.problem
}

func (l *engineLink) warning() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.state.problem == "" && !l.state.info.LiveRestore {
		return "the engine runs without live-restore: its death ends all sandboxes until they are restarted"
	}
	return ""
}

// life is the present life of the engine, or a problem for which it can't be judged by.
func (l *engineLink) life() (run *storev1.EngineRun, problem string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.cfg.run(l.state.info), l.state.problem
}

// run is the life that an engine tells of.
func (c *Config) run(info dockerx.Info) *storev1.EngineRun {
	return &storev1.EngineRun{BootId: c.BootID, EngineStart: info.Run}
}

// lastInfo is what an engine last said of itself, also while it is away; the zero value before it ever did.
func (l *engineLink) lastInfo() dockerx.Info {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.info
}

// known is what the engine last said of itself.
func (l *engineLink) known() linkState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state
}

func (l *engineLink) set(s linkState) {
	l.mu.Lock()
	changed := l.state.problem != s.problem
	switch {
	case s.problem == "":
	case l.state.problem == "":
		s.since = time.Now()
	default:
		s.since = l.state.since
	}
	l.state = s
	if s.problem == "" {
		l.info = s.info
	}
	l.mu.Unlock()
	l.cfg.Metrics.EngineUp(s.problem == "")
	switch {
	case changed && s.problem != "":
		l.log.Warn("engine state unknown", "reason", s.problem)
	case changed:
		l.log.Info("engine is back", "engine_version", s.info.Version, "live_restore", s.info.LiveRestore)
	}
}

// run keeps a session with the engine until ctx ends.
func (l *engineLink) run(ctx context.Context) {
	backoff := linkBackoffBase
	for ctx.Err() == nil {
		up, err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if up {
			backoff = linkBackoffBase
		}
		l.lost(err)
		l.pause(ctx, backoff)
		backoff = min(2*backoff, linkBackoffMax)
	}
}

func (l *engineLink) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-l.wakeup:
	}
}

// movedError says that the engine keeps its containers elsewhere than before.
type movedError struct{ was, is *storev1.EngineIdentity }

func (e *movedError) Error() string {
	return fmt.Sprintf("the Docker engine now keeps its containers in %s with storage driver %s, and before in %s with %s: it does "+
		"not show those of this daemon; agboxd changes no sandbox until dockerd runs as before, or `agbox engine confirm` says that they "+
		"are gone", e.is.GetDataRoot(), e.is.GetStorageDriver(), e.was.GetDataRoot(), e.was.GetStorageDriver())
}

var errForeign = errors.New("this is another Docker engine than before: it holds neither the marker nor any object of " +
	"this daemon; nothing is judged until `agbox engine confirm` says that it is the right one")

func (l *engineLink) lost(err error) {
	s := linkState{problem: fmt.Sprintf("the Docker engine can't be reached: %v", err)}
	var moved *movedError
	if errors.Is(err, errForeign) || errors.As(err, &moved) {
		s = linkState{problem: err.Error()}
	}
	l.set(s)
}

// session subscribes, then finds out whom it is talking to, then lets everybody look. Events come first so that
// nothing falls between them and the first list.
func (l *engineLink) session(ctx context.Context) (up bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.broke()
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
		l.returned()
		l.probe(ctx)
	})
	err = l.cfg.Engine.Events(ctx, l.since(), l.cfg.eventLabels(), func() { close(ready) }, l.handle)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(err)
	wg.Wait()
	return up, err
}

func (l *engineLink) handle(e dockerx.Event) {
	l.mu.Lock()
	l.seen = e.Time
	l.mu.Unlock()
	if l.cfg.isOurs(e.Labels) {
		l.event(e)
	}
}

// overlap is how far back a subscription begins before the last event or the start. The engine tells of an end before its
// lists know of it: an end that was told just before the subscription may be missing from the first list, and is told
// again. Keys that are added twice cost a pass.
const overlap = 10 * time.Second

func (l *engineLink) since() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.seen.IsZero() {
		return time.Now().Add(-overlap)
	}
	return l.seen.Add(-overlap)
}

// probe asks the engine from time to time whether it answers, for an engine that hangs keeps its stream open.
func (l *engineLink) probe(ctx context.Context) {
	for wait.For(ctx, probeInterval) == nil {
		info, err := l.cfg.Engine.Info(ctx)
		if err == nil {
			err = l.checkIdentity(ctx, info)
		}
		var moved *movedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &moved):
			l.set(linkState{problem: err.Error()})
			continue
		case err != nil:
			l.set(linkState{problem: fmt.Sprintf("the Docker engine does not answer: %v", err)})
			continue
		}
		before := l.known()
		if before.info.Run != info.Run { // behind a proxy a stream outlives its engine
			l.broke()
		}
		if l.set(linkState{info: info}); before.problem != "" || before.info.Run != info.Run {
			l.returned()
		}
	}
}

// identify reads the engine's life, which belongs to the stream that is already open, and checks that it is ours.
func (l *engineLink) identify(ctx context.Context) error {
	info, err := l.cfg.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if err := l.checkMarker(ctx); err != nil {
		return err
	}
	if err := l.checkIdentity(ctx, info); err != nil {
		return err
	}
	l.set(linkState{info: info})
	return nil
}

// checkSame checks that the engine is ours, was not restarted since run, and has the recorded storage driver and data root.
// Errors: ErrUnavailable, errForeign, *movedError.
func (l *engineLink) checkSame(ctx context.Context, run *storev1.EngineRun) error {
	info, err := l.cfg.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if !proto.Equal(l.cfg.run(info), run) {
		return fmt.Errorf("the engine was restarted during the observation: %w", errdefs.ErrUnavailable)
	}
	if err := l.checkIdentity(ctx, info); err != nil {
		return err
	}
	return l.checkMarker(ctx)
}

// checkIdentity compares the engine's storage driver and data root with those on record. It records different ones if the engine lists
// every recorded sandbox, as after an operator moved the data root.
func (l *engineLink) checkIdentity(ctx context.Context, info dockerx.Info) error {
	is := &storev1.EngineIdentity{StorageDriver: info.Driver, DataRoot: info.DataRoot}
	was, err := l.cfg.Store.EngineIdentity(ctx)
	if err != nil && !errdefs.IsDataLoss(err) { // a damaged record is as good as none
		return err
	}
	if proto.Equal(is, was) {
		return nil
	}
	if was != nil {
		all, err := l.showsAll(ctx)
		if err != nil {
			return err
		}
		if !all {
			return &movedError{was, is}
		}
		l.log.Warn("the engine moved its containers, and lists all of them", "storage_driver", info.Driver,
			"data_root", info.DataRoot)
	}
	return l.cfg.Store.SetEngineIdentity(ctx, is)
}

// showsAll reports whether the engine lists the primary of each sandbox that should have one, and finds it by its ID: a list may be of
// before.
func (l *engineLink) showsAll(ctx context.Context) (bool, error) {
	containers, err := l.cfg.listContainers(ctx, "")
	if err != nil {
		return false, err
	}
	shown := map[string]bool{}
	for _, c := range containers {
		if c.Labels[naming.Component] == naming.ComponentPrimary {
			shown[c.Labels[naming.SandboxID]] = true
		}
	}
	for _, id := range l.cfg.Store.LiveIDs() {
		sb, err := l.cfg.Store.Sandbox(ctx, id)
		primary := sb.Desired.GetObjects().GetPrimaryId()
		if err != nil || primary == "" || sb.Progress.GetMissing() {
			continue
		}
		if !shown[id] {
			return false, nil
		}
		switch _, err := l.cfg.Engine.InspectContainer(ctx, primary); {
		case errdefs.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

// checkMarker tells our engine from another one by a labelled volume that was made at the first start. The engine's
// own ID proves nothing. A marker that was pruned is made again if the engine holds any object of a live record.
func (l *engineLink) checkMarker(ctx context.Context) error {
	name := naming.MarkerVolume(l.cfg.Store.InstanceID())
	there, err := l.cfg.Engine.VolumeExists(ctx, name)
	if err != nil {
		return err
	}
	written, err := l.cfg.Store.MarkerWritten(ctx)
	switch {
	case err != nil || there && written:
		return err
	case there: // made by a daemon that died before it recorded that
		return l.cfg.Store.SetMarkerWritten(ctx)
	case written:
		known, err := l.holdsOurs(ctx)
		if err != nil {
			return err
		}
		if !known {
			return errForeign
		}
	}
	return l.mark(ctx, plan.BecauseEngineMarked)
}

// markEngine is the one action on the engine that is no step of a plan.
const markEngine plan.Kind = "mark-engine"

func (l *engineLink) mark(ctx context.Context, because plan.Reason) error {
	instance, begun := l.cfg.Store.InstanceID(), time.Now()
	name, labels := naming.MarkerVolume(instance), map[string]string{naming.Instance: instance, naming.Marker: "engine"}
	err := l.cfg.Engine.CreateVolume(ctx, name, labels)
	audit(l.log, "", plan.Step{Kind: markEngine, Reason: because}, name, time.Since(begun), err)
	if err != nil {
		return fmt.Errorf("mark the engine: %w", err)
	}
	return l.cfg.Store.SetMarkerWritten(ctx)
}

// holdsOurs reports whether the engine has an object of a live record, or none is to be expected anywhere.
func (l *engineLink) holdsOurs(ctx context.Context) (bool, error) {
	live := map[string]bool{}
	for _, id := range l.cfg.Store.LiveIDs() {
		live[id] = true
	}
	if l.cfg.Store.RebuildPending() {
		return l.holdsTraces(ctx, live)
	}
	if len(live) == 0 {
		return true, nil
	}
	containers, err := l.cfg.listContainers(ctx, "")
	if err != nil {
		return false, err
	}
	for _, c := range containers {
		if live[c.Labels[naming.SandboxID]] {
			return true, nil
		}
	}
	networks, err := l.cfg.listNetworks(ctx, "")
	if err != nil {
		return false, err
	}
	for _, n := range networks {
		if live[n.Labels[naming.SandboxID]] {
			return true, nil
		}
	}
	return false, nil
}

// confirm marks the engine that answers now as ours.
func (l *engineLink) confirm(ctx context.Context) (dockerx.Info, error) {
	info, err := l.cfg.Engine.Info(ctx)
	if err != nil {
		return info, err
	}
	if err := l.mark(ctx, plan.BecauseEngineConfirmed); err != nil {
		return info, err
	}
	is := &storev1.EngineIdentity{StorageDriver: info.Driver, DataRoot: info.DataRoot}
	if err := l.cfg.Store.SetEngineIdentity(ctx, is); err != nil {
		return info, err
	}
	l.log.Warn("an operator confirmed the engine", "engine_id", info.EngineID)
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
	return info, nil
}
