package dockertest

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// historyLimit is how many past events Docker keeps.
const historyLimit = 256

// stream is one subscription. Its fields are guarded by Fake.mu; wake has room for one signal.
type stream struct {
	queue []dockerx.Event
	ended bool
	wake  chan struct{}
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Events implements Subject. A network's event carries its labels, even if another client created it.
func (f *Fake) Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error {
	s := &stream{wake: make(chan struct{}, 1)}
	if since.IsZero() {
		since = time.Now()
	}
	if err := f.call(ctx, dockerx.OpEvents, func() error { return f.subscribe(s, since) }); err != nil {
		f.unsubscribe(s)
		return fmt.Errorf("subscribe to events: %w", err)
	}
	defer f.unsubscribe(s)
	ready()
	for {
		batch, ended := f.drain(s)
		for _, e := range batch {
			if dockerx.LabelsMatch(e.Labels, labels) {
				e.Labels = maps.Clone(e.Labels)
				handle(e)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("follow events: %w", ctx.Err())
		}
		if ended {
			return fmt.Errorf("event stream lost: %w", errUnreachable())
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// subscribe is called with mu held.
func (f *Fake) subscribe(s *stream, since time.Time) error {
	for _, e := range f.history {
		if !e.Time.Before(since) {
			s.queue = append(s.queue, e)
		}
	}
	s.ended = f.closed
	f.streams[s] = true
	s.signal()
	return nil
}

func (f *Fake) unsubscribe(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
}

func (f *Fake) drain(s *stream) (batch []dockerx.Event, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	batch, s.queue = s.queue, nil
	return batch, s.ended
}

// emit is called with mu held.
func (f *Fake) emit(e dockerx.Event) {
	if !f.down {
		f.pending = append(f.pending, e)
	}
}

// deliver sends the pending events to the streams. The hooks have run before, so a container's processes have exited and
// released their locks before the engine reports the exit. Called with mu held.
func (f *Fake) deliver() {
	f.history = append(f.history, f.pending...)
	if over := len(f.history) - historyLimit; over > 0 {
		f.history = f.history[over:]
	}
	for s := range f.streams {
		s.queue = append(s.queue, f.pending...)
		s.signal()
	}
	f.pending = nil
}

func (f *Fake) emitContainer(c *fakeContainer, action string) {
	e := dockerx.Event{
		Type: dockerx.TypeContainer, Action: action, ID: c.detail.ID, Labels: maps.Clone(c.detail.Labels), Time: time.Now().UTC(),
	}
	if action == dockerx.ActionKill {
		e.Signal = 9
	}
	if action == dockerx.ActionDie {
		e.ExitCode = c.detail.ExitCode
	}
	f.emit(e)
}
