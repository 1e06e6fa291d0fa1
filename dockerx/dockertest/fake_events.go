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

// Events implements Subject. A network's event carries its labels, even if another client created it.
func (f *Fake) Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error {
	if since.IsZero() {
		since = time.Now()
	}
	var l *link
	var next int // index in l.log
	err := f.call(ctx, dockerx.OpEvents, func() error {
		for l, next = f.link, max(0, len(f.link.log)-historyLimit); next < len(l.log) && l.log[next].Time.Before(since); {
			next++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("subscribe to events: %w", err)
	}
	ready()
	for {
		ended := l.reply(nil) // before the log is read: events that precede the end are handled
		batch, news := f.logged(l, next)
		next += len(batch)
		for _, e := range batch {
			if dockerx.LabelsMatch(e.Labels, labels) {
				e.Labels = maps.Clone(e.Labels)
				handle(e)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("follow events: %w", ctx.Err())
		}
		if ended != nil {
			return fmt.Errorf("event stream lost: %w", ended)
		}
		select {
		case <-news:
		case <-l.lost:
		case <-ctx.Done():
		}
	}
}

// logged returns the events of l from index next on, and a channel that is closed when there are more.
func (f *Fake) logged(l *link, next int) ([]dockerx.Event, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return l.log[next:], l.news
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
	if len(f.pending) > 0 {
		f.link.log, f.pending = append(f.link.log, f.pending...), nil
		close(f.link.news)
		f.link.news = make(chan struct{})
	}
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
