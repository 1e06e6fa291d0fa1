package execjournal

import (
	"context"
	"os"
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
	// pollRetry is the interval at which Watch asks the kernel for an instance or a watch again.
	pollRetry = 5 * time.Second
)

// logDir is the log directory of a sandbox that is to be watched.
type logDir struct {
	sandboxID, path string
	refused         bool      // the kernel refused a watch
	asked           time.Time // when the kernel was last asked for one
	mtime           time.Time
	fresh           bool // the last poll was so soon after mtime that a later change may leave the same mtime
	pause           time.Duration
	next            time.Time
}

// polls reports whether a directory is polled. d.mu is held.
func (d *Dir) polls(b *logDir) bool { return b.refused || d.watcher == nil }

func (d *Dir) wake() {
	select {
	case d.sooner <- struct{}{}:
	default:
	}
}

// pollSoon resets a directory to the shortest interval, because a change is expected.
func (d *Dir) pollSoon(sandboxID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.watched[sandboxID]; b != nil && d.polls(b) {
		b.pause, b.next = pollSoonest, time.Now()
		d.wake()
	}
}

// poll reads the mtime of the directory and reports whether it may have changed since the last poll. now is a time before the call.
func (b *logDir) poll(now time.Time) (changed bool) {
	var mtime time.Time // when an entry was last added or removed; zero when unknown
	if info, err := os.Lstat(b.path); err == nil {
		mtime = info.ModTime()
	}
	changed = b.fresh || !mtime.Equal(b.mtime)
	age := now.Sub(mtime)
	b.mtime, b.fresh = mtime, age < pollFresh && age > -pollAhead
	return changed
}

// poll reports changes of polled directories until ctx ends.
func (d *Dir) poll(ctx context.Context, notify func(sandboxID, execID string)) {
	for ctx.Err() == nil {
		changed, next := d.pollDue(time.Now())
		for _, id := range changed {
			notify(id, "")
		}
		select {
		case <-time.After(next):
		case <-d.sooner:
		case <-ctx.Done():
		}
	}
}

// pollDue polls the directories that are due. It returns the changed ones, and the time until the next poll. It also asks the kernel again
// for the watches that it refused.
func (d *Dir) pollDue(now time.Time) (changed []string, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next = pollRetry
	for id, b := range d.watched {
		if !d.polls(b) {
			continue
		}
		if !now.Before(b.next) {
			if b.poll(now) {
				b.pause = pollSoonest
				changed = append(changed, id)
			} else {
				b.pause = min(b.pause+b.pause/4, pollLatest)
			}
			b.next = now.Add(b.pause)
		}
		if b.refused && now.Sub(b.asked) > pollRetry {
			_ = d.watch(b)
			changed = append(changed, id) // it may have changed since the poll
		}
		next = min(next, b.next.Sub(now))
	}
	return changed, max(next, time.Millisecond)
}
