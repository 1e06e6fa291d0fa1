package shim

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// feeder copies the inbox of an exec into the standard input of its command, once, from the start to the end. It holds one
// piece at a time and never waits: what the command does not read stays in the inbox. A nil feeder has nothing to do.
type feeder struct {
	ctl, logs int // directories
	id        string
	pipe      int // write end, non-blocking; -1 once it is closed
	inbox     int // -1 as long as there is none
	offset    int64
	size      int64 // of the inbox, as last seen
	closed    bool  // the inbox ends at size
	acked     int64
	ackAt     time.Time // the disk was full; zero: it was not
	buf       []byte
}

// feedPiece is what a pipe holds by default.
const feedPiece = 64 << 10

// open makes the pipe and returns its read end.
func (f *feeder) open(who passwd.Identity) (int, error) {
	p, err := newPipe(who, 1)
	if err != nil {
		return -1, err
	}
	f.pipe, f.buf = p[1], make([]byte, feedPiece)
	return p[0], nil
}

// look finds out what the daemon has appended. Whether the inbox is closed is asked first: what is appended before a close
// is seen with it.
func (f *feeder) look() {
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
		say("exec %s: look at its inbox: %v", f.id, err)
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

// interest is what poll(2) is to wait for; ok is false when there is nothing. Without anything to write it still tells of a
// command that has closed its standard input.
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

// feed hands over one piece at most.
func (f *feeder) feed(events int16) {
	if events&unix.POLLERR != 0 {
		f.hangUp() // nobody can read it any more
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
	f.ack(time.Now())
	f.settle()
}

// settle ends standard input where the inbox ends.
func (f *feeder) settle() {
	if f.closed && f.offset == f.size {
		f.hangUp()
	}
}

// ack records how much was handed over, now or, on a full disk, later.
func (f *feeder) ack(now time.Time) {
	f.ackAt = time.Time{}
	if f.acked == f.offset {
		return
	}
	if execjournal.Ack(f.logs, f.id, f.offset) != nil {
		f.ackAt = now.Add(retryEvery)
		return
	}
	f.acked = f.offset
}

// retry records what a full disk refused, if it is time.
func (f *feeder) retry(now time.Time) {
	if f != nil && !f.ackAt.IsZero() && !now.Before(f.ackAt) {
		f.ack(now)
	}
}

// due is when retry is to be called; zero: never.
func (f *feeder) due() time.Time {
	if f == nil {
		return time.Time{}
	}
	return f.ackAt
}

// hangUp ends standard input.
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
