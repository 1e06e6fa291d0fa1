package execjournal

import (
	"encoding/binary"
	"iter"
	"strings"

	"golang.org/x/sys/unix"
)

// event is one struct inotify_event: wd, mask, cookie, len (each 32 bits), then len bytes of name.
type event struct {
	wd   int32
	mask uint32
	name string
}

// events decodes the result of one read from an inotify instance.
func events(buf []byte) iter.Seq[event] {
	return func(yield func(event) bool) {
		for len(buf) >= unix.SizeofInotifyEvent {
			ev := event{wd: int32(binary.NativeEndian.Uint32(buf)), mask: binary.NativeEndian.Uint32(buf[4:])}
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
			ev.name = strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
			buf = buf[end:]
			if !yield(ev) {
				return
			}
		}
	}
}
