package execjournal

import (
	"context"
	"os"
	"sync"
	"time"
)

// Where the kernel gives no more inotify instances or watches, which all processes of a user share, log directories are looked at
// instead: at most so often while something happens in them, at least so often while nothing does. One look is one stat.
const (
	pollSoonest = 10 * time.Millisecond
	pollLatest  = 100 * time.Millisecond
	// pollFresh is far above the granularity of a directory's time: what happened in the same instant as a look is told again.
	pollFresh = 50 * time.Millisecond
	// pollRetry is how often the kernel is asked again.
	pollRetry = 5 * time.Second
)

// poller looks at the log directories that the kernel does not watch.
type poller struct {
	mu    sync.Mutex
	boxes map[string]*polled // by sandbox ID
	added chan struct{}      // holds a word when there is a new one
}

// polled is one directory.
type polled struct {
	path  string
	mtime time.Time
	pause time.Duration
	next  time.Time
}

func newPoller() *poller {
	return &poller{boxes: map[string]*polled{}, added: make(chan struct{}, 1)}
}

// add has a directory looked at. What happens from now on is told.
func (p *poller) add(sandboxID, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boxes[sandboxID] == nil {
		p.boxes[sandboxID] = &polled{path: path, mtime: changedAt(path), pause: pollSoonest, next: time.Now()}
	}
	p.wake()
}

func (p *poller) wake() {
	select {
	case p.added <- struct{}{}:
	default:
	}
}

func (p *poller) remove(sandboxID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, sandboxID)
}

// stir says that something is about to happen in a directory.
func (p *poller) stir(sandboxID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.boxes[sandboxID]; b != nil {
		b.pause, b.next = pollSoonest, time.Now()
		p.wake()
	}
}

// ids are the sandboxes that are looked at.
func (p *poller) ids() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for id := range p.boxes {
		ids = append(ids, id)
	}
	return ids
}

// changedAt is when a name last came into a directory or left it; zero when it can't be told.
func changedAt(path string) time.Time {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// run tells of changes until ctx ends.
func (p *poller) run(ctx context.Context, notify func(sandboxID string)) {
	timer := time.NewTimer(pollRetry)
	defer timer.Stop()
	for ctx.Err() == nil {
		changed, next := p.look(time.Now())
		for _, id := range changed {
			notify(id)
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-p.added:
		case <-ctx.Done():
		}
	}
}

// look looks at what is due, and returns what has changed and when the next one is due.
func (p *poller) look(now time.Time) (changed []string, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = pollRetry
	for id, b := range p.boxes {
		if !now.Before(b.next) {
			mtime := changedAt(b.path)
			if !mtime.Equal(b.mtime) || now.Sub(mtime).Abs() < pollFresh {
				b.mtime, b.pause = mtime, pollSoonest
				changed = append(changed, id)
			} else {
				b.pause = min(b.pause+b.pause/4, pollLatest)
			}
			b.next = now.Add(b.pause)
		}
		next = min(next, b.next.Sub(now))
	}
	return changed, max(next, time.Millisecond)
}
