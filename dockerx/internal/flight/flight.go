// Package flight shares one run of a slow function, and its progress, among all callers that wait for it.
package flight

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
)

// ErrClosed is returned to the waiters of a closed Group.
var ErrClosed = fmt.Errorf("closed: %w", errdefs.ErrUnavailable)

// Interval is the pause after each call of a waiter's notify function: at most four calls a second.
const Interval = 250 * time.Millisecond

// Func is the function to run. It may report progress at any rate: report never blocks.
type Func[T, P any] func(ctx context.Context, report func(P)) (T, error)

// Group runs one function per key at a time. A run continues until its last waiter leaves.
type Group[T any, P comparable] struct {
	ctx    context.Context // ends with the Group
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	byKey map[string]*run[T, P]
}

// run is one run of a Func. value and err are set before done is closed.
type run[T any, P comparable] struct {
	cancel  context.CancelFunc
	waiters int // guarded by Group.mu
	done    chan struct{}
	value   T
	err     error
	newest  atomic.Pointer[P] // the last reported progress
}

// NewGroup returns an empty one.
func NewGroup[T any, P comparable]() *Group[T, P] {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Group[T, P]{ctx: ctx, cancel: cancel, byKey: map[string]*run[T, P]{}}
}

// Close cancels all runs and waits for them. Do must not be called afterwards.
func (g *Group[T, P]) Close() {
	g.cancel(ErrClosed)
	g.wg.Wait()
}

// Do joins the run of key, or starts one with f, and waits until it or ctx ends. The context of f ends when the last waiter
// has left, or with the Group; then Do returns ErrClosed.
//
// notify, if not nil, is called by the goroutine of Do: at once with the newest progress, the zero P if there is none; then
// with newer ones, with a pause of Interval after each call; and with the last one when the run has succeeded. A slow notify
// delays only this Do.
func (g *Group[T, P]) Do(ctx context.Context, key string, f Func[T, P], notify func(P)) (T, error) {
	r := g.join(key, f)
	defer g.leave(key, r)
	if notify == nil {
		notify = func(P) {}
	}
	told := *r.newest.Load()
	notify(told)
	tell := func() {
		if newest := *r.newest.Load(); newest != told {
			told = newest
			notify(told)
		}
	}
	for {
		select {
		case <-time.After(Interval):
			tell()
		case <-r.done:
			if r.err == nil {
				tell()
			}
			return r.value, r.err
		case <-ctx.Done():
			var zero T
			return zero, ctx.Err()
		}
	}
}

func (g *Group[T, P]) join(key string, f Func[T, P]) *run[T, P] {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.byKey[key]
	if r == nil {
		ctx, cancel := context.WithCancel(g.ctx)
		r = &run[T, P]{cancel: cancel, done: make(chan struct{})}
		r.newest.Store(new(P))
		g.byKey[key] = r
		g.wg.Go(func() {
			r.value, r.err = f(ctx, func(p P) { r.newest.Store(&p) })
			if r.err != nil && g.ctx.Err() != nil {
				r.err = context.Cause(g.ctx)
			}
			g.mu.Lock()
			g.forget(key, r)
			g.mu.Unlock()
			close(r.done)
		})
	}
	r.waiters++
	return r
}

// leave cancels a run when its last waiter leaves. A later caller starts another run.
func (g *Group[T, P]) leave(key string, r *run[T, P]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.waiters--; r.waiters == 0 {
		g.forget(key, r)
		r.cancel()
	}
}

// forget is called with mu held.
func (g *Group[T, P]) forget(key string, r *run[T, P]) {
	if g.byKey[key] == r {
		delete(g.byKey, key)
	}
}
