package dockertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func errUnreachable() error {
	return fmt.Errorf("the engine cannot be reached: %w", errdefs.ErrUnavailable)
}

// call runs the effect of one operation, with mu held, and applies the injected faults.
func (f *Fake) call(ctx context.Context, op string, effect func() error) error {
	return f.callUnlocked(ctx, op, func(context.Context) error { return f.locked(effect) })
}

// ask is call for an operation with an answer, which is zero when the call failed.
func ask[T any](ctx context.Context, f *Fake, op string, effect func() (T, error)) (T, error) {
	var out, zero T
	err := f.call(ctx, op, func() (err error) {
		out, err = effect()
		return err
	})
	if err != nil {
		return zero, err
	}
	return out, nil
}

// askOf is ask for a question about one container, by ID or name.
func askOf[T any](ctx context.Context, f *Fake, op, id string, effect func(*fakeContainer) (T, error)) (T, error) {
	return ask(ctx, f, op, func() (out T, err error) {
		c, err := f.find(id)
		if err != nil {
			return out, err
		}
		return effect(c)
	})
}

// callUnlocked is call for an effect that takes time and locks by itself. Its context is the caller's, except where the
// caller does not wait for it.
func (f *Fake) callUnlocked(ctx context.Context, op string, effect func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	flt, delay, link, err := f.admit(op)
	if err != nil {
		return err
	}
	switch {
	case flt.late > 0:
		f.later(ctx, flt.late, link, effect) // its result is discarded
	case flt.err != nil && !flt.after:
	case delay > 0:
		select {
		case err = <-f.later(ctx, delay, link, effect):
		case <-link.lost:
		case <-ctx.Done():
			err = ctx.Err()
		}
	default:
		err = effect(ctx)
	}
	if flt.err != nil {
		return flt.err
	}
	return link.reply(err)
}

// admit counts a call of op and returns the faults to apply.
func (f *Fake) admit(op string) (flt fault, delay time.Duration, link *link, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	if f.down || f.closed {
		return fault{}, 0, nil, errUnreachable()
	}
	if queue := f.faults[op]; len(queue) > 0 {
		flt, f.faults[op] = queue[0], queue[1:]
	}
	return flt, f.delays[op], f.link, nil
}

// later runs effect after d, whether or not the caller still waits.
func (f *Fake) later(ctx context.Context, d time.Duration, link *link, effect func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	time.AfterFunc(d, func() {
		done <- f.inLife(link.life, func() error { return effect(context.WithoutCancel(ctx)) })
	})
	return done
}

// inLife runs effect unless the engine was restarted since the given run.
func (f *Fake) inLife(life int, effect func() error) error {
	f.mu.Lock()
	gone := f.closed || f.link.life != life
	if !gone {
		f.inFlight.Add(1)
	}
	f.mu.Unlock()
	if gone {
		return errUnreachable()
	}
	defer f.inFlight.Done()
	return effect()
}

// link is the connection of all callers to the engine, until it is cut.
type link struct {
	life int // of the engine's process
	lost chan struct{}

	log  []dockerx.Event // guarded by Fake.mu
	news chan struct{}   // closed and replaced when log grows; guarded by Fake.mu
}

func newLink(life int, log []dockerx.Event) *link {
	return &link{life: life, lost: make(chan struct{}), log: log, news: make(chan struct{})}
}

// reply returns err, or the loss of the connection if that came first.
func (l *link) reply(err error) error {
	select {
	case <-l.lost:
		return errUnreachable()
	default:
		return err
	}
}

// cutConnections ends the streams and makes the calls in progress lose their replies. Called with mu held.
func (f *Fake) cutConnections() {
	close(f.link.lost)
	f.link = newLink(f.link.life, slices.Clone(f.link.log))
}
