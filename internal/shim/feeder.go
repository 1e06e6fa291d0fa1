package shim

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// feeder copies the inbox of an exec into the standard input of its command, once, from start to end. It holds one piece at a time and
// never blocks: data that the command has not read stays in the inbox. The methods of a nil feeder do nothing.
type feeder struct {
	ctl    int // directory
	id     string
	pipe   int // write end, non-blocking; -1 once it is closed
	inbox  int // -1 while it does not exist
	offset int64
	size   int64 // last observed size of the inbox, in bytes
	closed bool  // the inbox ends at size
	buf    []byte
}

// feedPiece is the default capacity of a pipe, in bytes.
const feedPiece = 64 << 10

// open creates the pipe and returns its read end.
func (f *feeder) open(who passwd.Identity) (int, error) {
	p, err := newPipe(who, 1)
	if err != nil {
		return -1, err
	}
	f.pipe, f.buf = p[1], make([]byte, feedPiece)
	return p[0], nil
}

// observe reads the size of the inbox and whether it is closed. It checks for the close first: data appended before a close is then
// observed together with it.
func (f *feeder) observe() {
	if f == nil || f.pipe < 0 {
		return
	}
	closed, err := execjournal.Exists(f.ctl, execjournal.ClosedName(f.id))
	if err == nil && f.inbox < 0 {
		err = f.openInbox()
	}
	var st unix.Stat_t
	if err == nil && f.inbox >= 0 {
		err = unix.Fstat(f.inbox, &st)
	}
	if err != nil {
		say("exec %s: read its inbox: %v", f.id, err)
		return
	}
	f.size, f.closed = max(f.size, st.Size), closed
	f.settle()
}

func (f *feeder) openInbox() error {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(f.ctl, execjournal.InboxName(f.id), flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		f.inbox = fd
	}
	return err
}

// interest returns the entry for poll(2); ok is false if there is none. Even with no data to write, poll reports that the command has
// closed its standard input.
func (f *feeder) interest() (fd unix.PollFd, ok bool) {
	if f == nil || f.pipe < 0 {
		return unix.PollFd{}, false
	}
	fd = unix.PollFd{Fd: int32(f.pipe)}
	if f.offset < f.size {
		fd.Events = unix.POLLOUT
	}
	return fd, true
}

// feed writes at most one piece to the command.
func (f *feeder) feed(events int16) {
	if events&unix.POLLERR != 0 {
		f.hangUp() // the read end is closed
		return
	}
	n, err := unix.Pread(f.inbox, f.buf[:min(f.size-f.offset, feedPiece)], f.offset)
	if err != nil || n <= 0 {
		if !errors.Is(err, unix.EINTR) {
			say("exec %s: read its inbox: %v", f.id, err)
			f.hangUp()
		}
		return
	}
	given, err := unix.Write(f.pipe, f.buf[:n])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil:
		f.hangUp()
		return
	}
	f.offset += int64(given)
	f.settle()
}

// settle closes standard input once all of a closed inbox was written.
func (f *feeder) settle() {
	if f.closed && f.offset == f.size {
		f.hangUp()
	}
}

// hangUp closes standard input.
func (f *feeder) hangUp() {
	if f == nil || f.pipe < 0 {
		return
	}
	unix.Close(f.pipe)
	f.pipe = -1
	if f.inbox >= 0 {
		unix.Close(f.inbox)
		f.inbox = -1
	}
	f.buf = nil
}
