package flight

import (
	"context"
	"sync"
	"time"
)

// Interval is the pause after each call of a waiter's tell: at most four calls a second.
const Interval = 250 * time.Millisecond

// news is the newest report of a run. Reports that nobody saw in time are overwritten.
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

// load returns the newest report, and what is closed when there is a newer one.
func (n *news[P]) load() (newest P, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest, n.changed
}

// follow tells of the run's reports until it has ended, or ctx.
func (r *run[T, P]) follow(ctx context.Context, tell func(P)) {
	for {
		newest, changed := r.news.load()
		tell(newest)
		if over(ctx, r.done, time.After(Interval)) || over(ctx, r.done, changed) {
			r.tellLast(changed, tell)
			return
		}
	}
}

// tellLast tells of what was reported after changed was loaded, if the run ended well.
func (r *run[T, P]) tellLast(changed <-chan struct{}, tell func(P)) {
	if !isClosed(r.done) || r.err != nil || !isClosed(changed) {
		return
	}
	newest, _ := r.news.load()
	tell(newest)
}

// over waits for next, and reports whether done or ctx came first.
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
