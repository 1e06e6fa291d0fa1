package execjournal

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Intervals at which log directories are polled when no inotify instance or watch is available (all processes of a user share
// their number): the shortest while a directory changes, the longest while it does not. A poll is one stat.
const (
	pollSoonest = 10 * time.Millisecond
	pollLatest  = 100 * time.Millisecond
	// pollFresh far exceeds the granularity of a directory's mtime. Changes up to then may leave the mtime that a poll saw, so the
	// next poll reports the directory again.
	pollFresh = 50 * time.Millisecond
	// pollAhead is how far a directory's mtime may be ahead of the start of a poll on a busy host. An mtime further ahead was set
	// explicitly, and no change produces it.
	pollAhead = 5 * time.Second
	// pollRetry is the interval at which Watch asks the kernel for a watch again.
	pollRetry = 5 * time.Second
)

// poller polls the log directories that the kernel does not watch.
type poller struct {
	mu    sync.Mutex
	boxes map[string]*polled // by sandbox ID
	added chan struct{}      // receives an element when a directory was added
}

// polled is one directory.
type polled struct {
	path  string
	mtime time.Time
	fresh bool // the last poll was so soon after mtime that a later change may leave the same mtime
	pause time.Duration
	next  time.Time
}

func newPoller() *poller {
	return &poller{boxes: map[string]*polled{}, added: make(chan struct{}, 1)}
}

// add starts polling a directory and reports later changes.
func (p *poller) add(sandboxID, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boxes[sandboxID] == nil {
		now := time.Now()
		b := &polled{path: path, pause: pollSoonest, next: now}
		b.poll(now)
		p.boxes[sandboxID] = b
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

// pollSoon resets a directory to the shortest interval, because a change is expected.
func (p *poller) pollSoon(sandboxID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.boxes[sandboxID]; b != nil {
		b.pause, b.next = pollSoonest, time.Now()
		p.wake()
	}
}

// ids returns the sandboxes whose directories are polled.
func (p *poller) ids() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.boxes))
}

// poll reads the mtime of the directory and reports whether it may have changed since the last poll. now is a time before the call.
func (b *polled) poll(now time.Time) (changed bool) {
	var mtime time.Time // when an entry was last added or removed; zero when unknown
	if info, err := os.Lstat(b.path); err == nil {
		mtime = info.ModTime()
	}
	changed = b.fresh || !mtime.Equal(b.mtime)
	age := now.Sub(mtime)
	b.mtime, b.fresh = mtime, age < pollFresh && age > -pollAhead
	return changed
}

// run reports changes until ctx ends.
func (p *poller) run(ctx context.Context, notify func(sandboxID string)) {
	timer := time.NewTimer(pollRetry)
	defer timer.Stop()
	for ctx.Err() == nil {
		changed, next := p.pollDue(time.Now())
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

// pollDue polls the directories that are due. It returns the changed ones, and the time until the next poll.
func (p *poller) pollDue(now time.Time) (changed []string, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = pollRetry
	for id, b := range p.boxes {
		if !now.Before(b.next) {
			if b.poll(now) {
				b.pause = pollSoonest
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
