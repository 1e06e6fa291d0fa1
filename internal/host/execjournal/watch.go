package execjournal

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/wait"
)

// floodPause follows a read that filled half of the buffer, so that the kernel's queue absorbs or drops the rest of a flood.
const floodPause = 10 * time.Millisecond

// Watch calls notify, from at most two goroutines, whenever a journal or a .lost marker was created in a watched log
// directory, until ctx ends; it then returns nil. execid.Main stands for the report of a start. An empty execID means any exec of
// the sandbox, or that report; both empty, any exec: once at the start, and after an overflow. A notification only means that Status should be called: the exec may not exist.
// notify must not block. A directory for which no inotify instance or watch is available is polled ten times a second, and
// more often while execs start and end; see Unwatched. At most one Watch may run.
func (d *Dir) Watch(ctx context.Context, notify func(sandboxID, execID string)) error {
	ctx, cancel := context.WithCancel(ctx)
	var polling sync.WaitGroup
	defer polling.Wait()
	defer cancel()
	polling.Go(func() { d.poll(ctx, notify) })
	i, err := newWatchSet()
	for err != nil { // fs.inotify.max_user_instances is exhausted
		if wait.For(ctx, pollRetry) != nil {
			return nil
		}
		i, err = newWatchSet()
	}
	return d.run(ctx, i, watchLoop{mu: &d.mu, slot: &d.watcher, install: d.install, changed: changedExec, pause: func(n int) time.Duration {
		if n > watchBuffer/2 {
			return floodPause
		}
		return 0
	}}, notify)
}

func changedExec(k execKey, name string) execKey {
	if name == StartedName {
		return execKey{k.sandboxID, execid.Main}
	}
	execID, ok := ownerOf(name, journalSuffix, lostSuffix)
	if !ok {
		return execKey{}
	}
	return execKey{k.sandboxID, execID}
}

// AddWatch starts watching the log directory of sandboxID. Idempotent. Call Status after it: earlier changes are not
// reported. Without a running Watch the directory is watched when the next one starts. Errors: not found.
func (d *Dir) AddWatch(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.watched[sandboxID]
	if b == nil {
		now := time.Now()
		b = &logDir{sandboxID: sandboxID, path: d.Paths(sandboxID).Logs, pause: pollSoonest, next: now}
		b.poll(now)
		d.watched[sandboxID] = b
	}
	d.wake()
	return d.watch(b)
}

// watch watches one log directory, or has it polled if the kernel refuses a watch. d.mu is held.
func (d *Dir) watch(b *logDir) error {
	if d.watcher == nil {
		return nil // polled until a Watch installs its instance
	}
	const mask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	err := d.watcher.add(b.path, mask, execKey{sandboxID: b.sandboxID})
	missing := errors.Is(err, fs.ErrNotExist)
	b.refused, b.asked = err != nil && !missing, time.Now()
	if missing {
		return err
	}
	return nil
}

func (d *Dir) install() error {
	for _, b := range d.watched {
		_ = d.watch(b) // a removed directory has no journal
	}
	return nil
}

// Unwatched is the number of sandboxes whose log directories are polled because the kernel refused a watch.
func (d *Dir) Unwatched() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.watched {
		if d.polls(b) {
			n++
		}
	}
	return n
}

// forgetWatch drops all watches of a sandbox; the kernel removes them with the directories.
func (d *Dir) forgetWatch(sandboxID string) {
	d.forgetAgents(sandboxID)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watched, sandboxID)
}
