package execjournal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"golang.org/x/sys/unix"
)

// floodPause follows a read that filled half of the buffer, so that the kernel's queue absorbs or drops the rest of a flood.
const floodPause = 10 * time.Millisecond

// Watch calls notify, from at most two goroutines, whenever a journal or a .lost marker was created in a watched log
// directory, until ctx ends; it then returns nil. An empty execID means any exec of the sandbox; both empty, any exec:
// once at the start, and after an overflow. A notification only means that Status should be called: the exec may not exist.
// notify must not block. A directory for which no inotify instance or watch is available is polled ten times a second, and
// more often while execs start and end; see Unwatched. At most one Watch may run.
func (d *Dir) Watch(ctx context.Context, notify func(sandboxID, execID string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var polling sync.WaitGroup
	defer polling.Wait()
	defer cancel()
	polling.Go(func() { d.polls.run(ctx, func(sandboxID string) { notify(sandboxID, "") }) })
	for ctx.Err() == nil {
		if err := d.watchOnce(ctx, notify); err != nil && !errors.Is(err, errNoInstance) {
			return err
		}
		d.pollAll()
		if wait.For(ctx, pollRetry) != nil {
			break
		}
	}
	return nil
}

// errNoInstance says that fs.inotify.max_user_instances is exhausted.
var errNoInstance = errors.New("no inotify instance available; raise fs.inotify.max_user_instances")

// watchOnce is Watch with one inotify instance.
func (d *Dir) watchOnce(ctx context.Context, notify func(sandboxID, execID string)) error {
	i, err := newInotify()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoInstance, err)
	}
	defer i.file.Close()
	if err := d.install(i); err != nil {
		return err
	}
	defer d.uninstall()
	var retrying sync.WaitGroup
	defer retrying.Wait()
	retry, cancel := context.WithCancel(ctx)
	defer cancel()
	retrying.Go(func() { d.watchPolled(retry, notify) })
	return i.dispatch(ctx, notify, func(all iter.Seq[Event]) {
		for ev := range all {
			k := i.lookup(ev)
			if execID, ok := ownerOf(ev.Name, journalSuffix, lostSuffix); ok && k.sandboxID != "" {
				notify(k.sandboxID, execID)
			}
		}
	}, func(n int) time.Duration {
		if n > watchBuffer/2 {
			return floodPause
		}
		return 0
	})
}

// AddWatch starts watching the log directory of sandboxID. Idempotent. Call Status after it: earlier changes are not
// reported. Without a running Watch the directory is watched when the next one starts. Errors: not found.
func (d *Dir) AddWatch(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[sandboxID] = true
	return d.watchOrPoll(sandboxID)
}

// watchOrPoll watches one log directory, or polls it when the kernel refuses a watch. d.mu is held.
func (d *Dir) watchOrPoll(sandboxID string) error {
	logs := d.Paths(sandboxID).Logs
	if d.watcher == nil {
		d.polls.add(sandboxID, logs) // until a Watch installs its instance
		return nil
	}
	const mask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	err := d.watcher.add(logs, mask, execKey{sandboxID: sandboxID})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.polls.remove(sandboxID)
		return err
	case err != nil:
		d.polls.add(sandboxID, logs)
		return nil
	}
	d.polls.remove(sandboxID)
	return nil
}

// pollAll polls every directory that should be watched.
func (d *Dir) pollAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.watched {
		d.polls.add(id, d.Paths(id).Logs)
	}
}

// watchPolled retries the watches that the kernel refused, until ctx ends.
func (d *Dir) watchPolled(ctx context.Context, notify func(sandboxID, execID string)) {
	for wait.For(ctx, pollRetry) == nil {
		for _, id := range d.polls.ids() {
			d.mu.Lock()
			if d.watched[id] && d.watcher != nil {
				_ = d.watchOrPoll(id)
			}
			d.mu.Unlock()
			notify(id, "")
		}
	}
}

// Unwatched is the number of sandboxes whose log directories are polled because the kernel refused a watch.
func (d *Dir) Unwatched() int { return len(d.polls.ids()) }

func (d *Dir) forgetWatch(sandboxID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watched, sandboxID) // the kernel removes its watch with the directory
	d.polls.remove(sandboxID)
	d.agents.forget(sandboxID)
}

func (d *Dir) install(w *inotify) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watcher != nil {
		return refusedf("a watch is already running")
	}
	d.watcher = w
	for id := range d.watched {
		_ = d.watchOrPoll(id) // a removed directory has no journal
	}
	return nil
}

func (d *Dir) uninstall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watcher = nil
}
