// Package flight shares one run of something slow among all who wait for it.
package flight

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is what those get who wait for a Group that was closed.
var ErrClosed = errors.New("closed")

// Group runs one function per key at a time. A waiter who leaves does not end the run for the others; the last one does.
type Group[T any] struct {
	ctx    context.Context // ends with the Group
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	byKey map[string]*run[T]
}

// run is one of them. value and err are set before done is closed.
type run[T any] struct {
	cancel  context.CancelFunc
	waiters int // guarded by Group.mu
	done    chan struct{}
	value   T
	err     error
}

// NewGroup returns an empty one.
func NewGroup[T any]() *Group[T] {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Group[T]{ctx: ctx, cancel: cancel, byKey: map[string]*run[T]{}}
}

// Close ends all runs and waits for them. Do must not be called afterwards.
func (g *Group[T]) Close() {
	g.cancel(ErrClosed)
	g.wg.Wait()
}

// Do joins the run of key, or starts one with f, and waits for its end, or for that of ctx. The context of f ends when
// the last waiter has left, or with the Group; then Do returns ErrClosed.
func (g *Group[T]) Do(ctx context.Context, key string, f func(context.Context) (T, error)) (T, error) {
	r := g.join(key, f)
	defer g.leave(key, r)
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

func (g *Group[T]) join(key string, f func(context.Context) (T, error)) *run[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.byKey[key]
	if r == nil {
		ctx, cancel := context.WithCancel(g.ctx)
		r = &run[T]{cancel: cancel, done: make(chan struct{})}
		g.byKey[key] = r
		g.wg.Go(func() {
			r.value, r.err = f(ctx)
			if r.err != nil && g.ctx.Err() != nil {
				r.err = context.Cause(g.ctx)
			}
			g.forget(key, r)
			close(r.done)
		})
	}
	r.waiters++
	return r
}

// leave ends a run that nobody waits for any more. Whoever asks from now on starts another.
func (g *Group[T]) leave(key string, r *run[T]) {
	g.mu.Lock()
	r.waiters--
	last := r.waiters == 0
	if last && g.byKey[key] == r {
		delete(g.byKey, key)
	}
	g.mu.Unlock()
	if last {
		r.cancel()
	}
}

func (g *Group[T]) forget(key string, r *run[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey[key] == r {
		delete(g.byKey, key)
	}
}
