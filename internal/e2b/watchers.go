package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/e2b/filesystem"
)

const (
	// maxWatchers bounds the polled watchers of a sandbox. Each holds a stream of the daemon.
	maxWatchers = 32
	// maxHeldBytes bounds the events that a watcher holds until the next poll, in bytes; an event counts as its name and eventBytes.
	maxHeldBytes = 1 << 20
	eventBytes   = 64
	// watcherTTL is how long a watcher lives without a poll.
	watcherTTL = time.Hour
	// endedTTL is how long one that holds no more changes, such as that of a deleted sandbox, is kept so that a poll can say why.
	endedTTL = time.Minute
)

// watchers are those that clients poll. They live in memory: a restart of the daemon ends them, and clients then get not_found.
type watchers struct {
	running sync.WaitGroup

	mu      sync.Mutex
	byID    map[string]*watcher
	perBox  map[string]int // watchers by sandbox ID
	stopped bool
}

// watcher holds the events of a directory until the next poll.
type watcher struct {
	sandboxID string
	cancel    context.CancelFunc
	expiry    *time.Timer
	ended     bool // guarded by watchers.mu; run has returned

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	bytes  int
	err    error // why no more events come; nil while they do
}

func newWatchers() *watchers { return &watchers{byID: map[string]*watcher{}, perBox: map[string]int{}} }

// add starts run in a goroutine that ends with the watcher. Errors: resource_exhausted, unavailable.
func (ws *watchers) add(sandboxID string, run func(context.Context, *watcher)) (id string, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.stopped:
		return "", connect.NewError(connect.CodeUnavailable, errors.New("agboxd is shutting down"))
	case ws.perBox[sandboxID] >= maxWatchers:
		return "", connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("sandbox %s has %d polled watchers, the most that are allowed; remove one that is not used any more", sandboxID, maxWatchers))
	}
	id = rand.Text()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{sandboxID: sandboxID, cancel: cancel}
	w.expiry = time.AfterFunc(watcherTTL, func() { ws.remove(sandboxID, id) })
	ws.byID[id] = w
	ws.perBox[sandboxID]++
	ws.running.Go(func() {
		defer cancel()
		run(ctx, w)
		ws.mu.Lock()
		defer ws.mu.Unlock()
		w.ended = true
		w.expiry.Reset(endedTTL)
	})
	return id, nil
}

// remove ends a watcher, if the sandbox has it.
func (ws *watchers) remove(sandboxID, id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w == nil || w.sandboxID != sandboxID {
		return false
	}
	w.expiry.Stop()
	w.cancel()
	delete(ws.byID, id)
	if ws.perBox[sandboxID]--; ws.perBox[sandboxID] == 0 {
		delete(ws.perBox, sandboxID)
	}
	return true
}

// poll returns a watcher of the sandbox and, while it holds changes, prolongs its life; nil: there is none.
func (ws *watchers) poll(sandboxID, id string) *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[id]
	if w == nil || w.sandboxID != sandboxID {
		return nil
	}
	if !w.ended {
		w.expiry.Reset(watcherTTL)
	}
	return w
}

// stop ends all watchers, waits for their goroutines and allows no more.
func (ws *watchers) stop() {
	ws.mu.Lock()
	ws.stopped = true
	for _, w := range ws.byID {
		w.expiry.Stop()
		w.cancel()
	}
	clear(ws.byID)
	clear(ws.perBox)
	ws.mu.Unlock()
	ws.running.Wait()
}

// hold keeps the events of a change. Errors: resource_exhausted if there is no room for them.
func (w *watcher) hold(events []*filesystem.FilesystemEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if w.bytes += eventBytes + len(e.GetName()); w.bytes > maxHeldBytes {
			return errLost()
		}
		w.events = append(w.events, e)
	}
	return nil
}

// fail records why no more events come.
func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// take returns the events since the last call, and once there are none the reason why no more come.
func (w *watcher) take() ([]*filesystem.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	if len(events) == 0 {
		return nil, w.err
	}
	w.events, w.bytes = nil, 0
	return events, nil
}

// createWatcher starts to hold the changes below a directory, and answers once it sees them.
func (g *Gateway) createWatcher(ctx context.Context, t target, req *filesystem.CreateWatcherRequest) (*filesystem.CreateWatcherResponse, error) {
	ready, ended := make(chan struct{}), make(chan error, 1)
	watch := &agboxv1.WatchDirRequest{SandboxId: t.id, Path: req.GetPath(), User: t.user, Recursive: req.GetRecursive()}
	id, err := g.watchers.add(t.id, func(ctx context.Context, w *watcher) {
		err := g.holdChanges(ctx, w, watch, sync.OnceFunc(func() { close(ready) }))
		w.fail(err)
		ended <- err
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return &filesystem.CreateWatcherResponse{WatcherId: id}, nil
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.watchers.remove(t.id, id)
	return nil, err
}

// holdChanges holds changes until the stream of the daemon ends, and returns why it did.
func (g *Gateway) holdChanges(ctx context.Context, w *watcher, watch *agboxv1.WatchDirRequest, started func()) error {
	for change, err := range g.api.WatchDir(ctx, watch, started) {
		if err != nil {
			return err
		}
		events, err := eventsOf(change)
		if err != nil {
			return err
		}
		if err := w.hold(events); err != nil {
			return err
		}
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("the watch has ended: create another watcher"))
}

func (g *Gateway) watcherEvents(_ context.Context, t target, req *filesystem.GetWatcherEventsRequest) (*filesystem.GetWatcherEventsResponse, error) {
	w := g.watchers.poll(t.id, req.GetWatcherId())
	if w == nil {
		return nil, unknownWatcher(req.GetWatcherId())
	}
	events, err := w.take()
	return &filesystem.GetWatcherEventsResponse{Events: events}, err
}

func (g *Gateway) removeWatcher(_ context.Context, t target, req *filesystem.RemoveWatcherRequest) (*filesystem.RemoveWatcherResponse, error) {
	if !g.watchers.remove(t.id, req.GetWatcherId()) {
		return nil, unknownWatcher(req.GetWatcherId())
	}
	return &filesystem.RemoveWatcherResponse{}, nil
}

func unknownWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound,
		fmt.Errorf("watcher %q was not found: it was removed, expired without a poll, or ended with a restart of agboxd; create another one", id))
}

func errLost() error {
	return connect.NewError(connect.CodeResourceExhausted, errors.New("changes were lost: list the directory, and watch it again"))
}
