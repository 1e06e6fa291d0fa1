// Package inotify opens instances of inotify and decodes their events. Which directories are watched, and what an event means, is up to its users.
package inotify

import (
	"encoding/binary"
	"iter"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Event is one event.
type Event struct {
	Watch  int32  // watch descriptor; -1 if the kernel dropped events
	Mask   uint32 // unix.IN_*
	Cookie uint32 // the same for both halves of a rename
	Name   string // in the watched directory; empty: the watched file itself
}

// Open creates an instance and returns its descriptor, which is closed on exec and does not block. Error: EMFILE if its user has no instance
// left.
func Open() (fd int, err error) {
	fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	return fd, os.NewSyscallError("inotify_init1", err)
}

// Events decodes the result of one read from an instance.
func Events(buf []byte) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for len(buf) >= unix.SizeofInotifyEvent {
			ev := Event{
				Watch: int32(binary.NativeEndian.Uint32(buf)), Mask: binary.NativeEndian.Uint32(buf[4:]), Cookie: binary.NativeEndian.Uint32(buf[8:]),
			}
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
			ev.Name = strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
			buf = buf[end:]
			if !yield(ev) {
				return
			}
		}
	}
}
