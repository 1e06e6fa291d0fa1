package execjournal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/inotify"
	"github.com/agbox/agbox/internal/wait"
)

// A container can create files in its log directory at any rate. These bound the daemon's cost.
const (
	watchBuffer   = 64 << 10
	overflowPause = 100 * time.Millisecond
)

// watchSet is one inotify instance with its watches, which the lock of its watchLoop guards.
type watchSet struct {
	fd      int
	file    *os.File
	watches map[int32]execKey // by watch descriptor
}

// execKey is what a watch is for: a file of an exec, or, without an execID, a directory of a sandbox.
type execKey struct{ sandboxID, execID string }

// newWatchSet creates an instance. Errors: unavailable when the kernel has none left.
func newWatchSet() (*watchSet, error) {
	fd, err := inotify.Open()
	if err != nil {
		return nil, unavailablef("create an inotify instance: %w", err)
	}
	return &watchSet{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), watches: map[int32]execKey{}}, nil
}

// add watches path for k. Errors: not found; else unavailable.
func (i *watchSet) add(path string, mask uint32, k execKey) error {
	wd, err := unix.InotifyAddWatch(i.fd, path, mask)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFoundf("watch %s: %w", path, err)
	case err != nil:
		return unavailablef("watch %s: %w", path, err)
	}
	i.watches[int32(wd)] = k // the instance never uses a descriptor again
	return nil
}

// remove stops the watches of all keys for which gone is true. The kernel refuses that only for those that it removed with their files.
func (i *watchSet) remove(gone func(execKey) bool) {
	maps.DeleteFunc(i.watches, func(wd int32, k execKey) bool {
		if gone(k) {
			_, _ = unix.InotifyRmWatch(i.fd, uint32(wd))
		}
		return gone(k)
	})
}

// lookup returns what the watch of an event is for; zero if it is over.
func (i *watchSet) lookup(ev inotify.Event) execKey {
	if ev.Mask&unix.IN_IGNORED != 0 {
		delete(i.watches, ev.Watch)
	}
	return i.watches[ev.Watch]
}

// watchLoop is what differs between Watch and WatchAgents.
type watchLoop struct {
	mu      *sync.Mutex // held during install and changed
	slot    **watchSet  // the instance, while the loop runs
	install func() error
	changed func(k execKey, name string) execKey // the exec that an event concerns; zero if it is none
	pause   func(n int) time.Duration            // for how long later events stay in the kernel's queue after a read of n bytes
}

// run calls notify for the events of each read until ctx ends; then it returns nil. At its start, and after an overflow of the kernel's
// queue, it calls notify with empty IDs.
func (d *Dir) run(ctx context.Context, i *watchSet, w watchLoop, notify func(sandboxID, execID string)) error {
	defer i.file.Close() // no method uses an instance that is in no slot
	if err := d.occupy(i, w); err != nil {
		return err
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.slot = nil
	}()
	notify("", "")
	stop := context.AfterFunc(ctx, func() { _ = i.file.SetReadDeadline(time.Now()) })
	defer stop()
	buf := make([]byte, watchBuffer)
	for {
		n, err := i.file.Read(buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read inotify: %w", err)
		}
		pause := w.pause(n)
		changed, lost := d.changed(i, w, buf[:n])
		for k := range changed {
			notify(k.sandboxID, k.execID)
		}
		if lost {
			notify("", "")
			pause = overflowPause
		}
		if pause > 0 && wait.For(ctx, pause) != nil {
			return nil
		}
	}
}

func (d *Dir) occupy(i *watchSet, w watchLoop) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *w.slot != nil {
		return refusedf("a watch is already running")
	}
	*w.slot = i
	err := w.install()
	if err != nil {
		*w.slot = nil
	}
	return err
}

// changed returns the execs that the events concern, and whether the kernel dropped others.
func (d *Dir) changed(i *watchSet, w watchLoop, events []byte) (changed map[execKey]bool, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = map[execKey]bool{}
	for ev := range inotify.Events(events) {
		lost = lost || ev.Mask&unix.IN_Q_OVERFLOW != 0
		if k := i.lookup(ev); k.sandboxID != "" {
			changed[w.changed(k, ev.Name)] = true
		}
	}
	delete(changed, execKey{})
	return changed, lost
}
