package flight

import (
	"context"
	"sync"
	"time"
)

// Interval is the pause after each call of a waiter's report function: at most four calls a second.
const Interval = 250 * time.Millisecond

// news is the newest progress of a run. Each report overwrites the one before.
type news[P any] struct {
	mu      sync.Mutex
	newest  P
	changed chan struct{} // closed and replaced by each report
}

func newNews[P any]() news[P] { return news[P]{changed: make(chan struct{})} }

func (n *news[P]) report(p P) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.newest = p
	close(n.changed)
	n.changed = make(chan struct{})
}

// load returns the newest report, and a channel that is closed when there is a newer one.
func (n *news[P]) load() (newest P, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest, n.changed
}

// follow calls notify with the run's progress until the run or ctx ends.
func (r *run[T, P]) follow(ctx context.Context, notify func(P)) {
	for {
		newest, changed := r.news.load()
		notify(newest)
		if over(ctx, r.done, time.After(Interval)) || over(ctx, r.done, changed) {
			r.notifyLast(changed, notify)
			return
		}
	}
}

// notifyLast calls notify with the last report if the run succeeded and reported after changed was loaded.
func (r *run[T, P]) notifyLast(changed <-chan struct{}, notify func(P)) {
	if !isClosed(r.done) || r.err != nil || !isClosed(changed) {
		return
	}
	newest, _ := r.news.load()
	notify(newest)
}

// over waits for next, and reports whether done or ctx ended first.
func over[C any](ctx context.Context, done <-chan struct{}, next <-chan C) bool {
	select {
	case <-next:
		return false
	case <-done:
		return true
	case <-ctx.Done():
		return true
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
