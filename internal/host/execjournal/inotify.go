package execjournal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/wait"
)

// A container can create files in its log directory at any rate. These bound the daemon's cost.
const (
	watchBuffer   = 64 << 10
	overflowPause = 100 * time.Millisecond
)

// inotify is one inotify instance with its watches. Safe for concurrent use.
type inotify struct {
	file *os.File

	mu      sync.Mutex
	watches map[int32]execKey // by watch descriptor
}

// execKey is what a watch is for: a file of an exec, or, without an execID, a directory of a sandbox.
type execKey struct{ sandboxID, execID string }

// Event is one inotify event.
type Event struct {
	Watch int32 // descriptor
	Mask  uint32
	Name  string
}

// newInotify creates an instance. Errors: unavailable when the kernel has none left.
func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, unavailablef("create an inotify instance: %w", err)
	}
	return &inotify{file: os.NewFile(uintptr(fd), "inotify"), watches: map[int32]execKey{}}, nil
}

// add watches path for k. Errors: not found; else unavailable.
func (i *inotify) add(path string, mask uint32, k execKey) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var wd int
	var err error
	if controlErr := i.control(func(fd int) { wd, err = unix.InotifyAddWatch(fd, path, mask) }); controlErr != nil {
		return fmt.Errorf("watch %s: %w", path, controlErr)
	}
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
func (i *inotify) remove(gone func(execKey) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.watches, func(wd int32, k execKey) bool {
		if gone(k) {
			_ = i.control(func(fd int) { _, _ = unix.InotifyRmWatch(fd, uint32(wd)) })
		}
		return gone(k)
	})
}

// lookup returns what the watch of an event is for; zero if it is over.
func (i *inotify) lookup(ev Event) execKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ev.Mask&unix.IN_IGNORED != 0 {
		delete(i.watches, ev.Watch)
	}
	return i.watches[ev.Watch]
}

func (i *inotify) control(fn func(fd int)) error {
	conn, err := i.file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) { fn(int(fd)) })
}

// dispatch calls handle for the events of each read until ctx ends; then it closes the instance and returns nil. At its start, and after an
// overflow of the kernel's queue, it calls notify with empty IDs. pause returns for how long later events stay in that queue, by the number
// of bytes that were read.
func (i *inotify) dispatch(
	ctx context.Context, notify func(sandboxID, execID string), handle func(iter.Seq[Event]), pause func(n int) time.Duration,
) error {
	notify("", "")
	stop := context.AfterFunc(ctx, func() { i.file.Close() })
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
		lost := false
		handle(func(yield func(Event) bool) {
			for ev := range Events(buf[:n]) {
				if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
					lost = true
				} else if !yield(ev) {
					return
				}
			}
		})
		d := pause(n)
		if lost {
			notify("", "")
			d = overflowPause
		}
		if d > 0 && wait.For(ctx, d) != nil {
			return nil
		}
	}
}

// Events decodes the result of one read from an inotify instance.
func Events(buf []byte) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for len(buf) >= unix.SizeofInotifyEvent {
			ev := Event{Watch: int32(binary.NativeEndian.Uint32(buf)), Mask: binary.NativeEndian.Uint32(buf[4:])}
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
			ev.Name = strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
			buf = buf[end:]
			if !yield(ev) {
				return
			}
		}
	}
}
