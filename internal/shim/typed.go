package shim

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/passwd"
)

// typed is the standard input of a command that clients write to through the live channel: a pipe, or a terminal. Offsets count bytes from the
// start, so a client that was cut off continues where this supervisor has accepted. The methods of a nil typed do nothing.
type typed struct {
	fd       int // write end of the pipe or master of the terminal, non-blocking; -1 once it is closed
	terminal bool
	taken    int64  // bytes that the pipe or the terminal has taken
	pending  []byte // accepted and not taken, at most channel.StdinWindow; a part of room
	room     []byte // nil until something is pending, and again with rest
	end      int64  // offset at which it ends; -1: not known
}

// openTyped creates the command's standard input as a pipe and returns the read end.
func openTyped(who passwd.Identity) (*typed, int, error) {
	p, err := newPipe(who, 1)
	if err != nil {
		return nil, -1, err
	}
	return &typed{fd: p[1], end: -1}, p[0], nil
}

// openTerminal creates a terminal of the given size and returns its slave end, which belongs to who.
func openTerminal(who passwd.Identity, columns, rows uint32) (t *typed, slave int, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	slave, err = openSlave(master)
	if err == nil && int(who.UID) != unix.Geteuid() {
		err = unix.Fchown(slave, int(who.UID), -1)
	}
	if err != nil {
		unix.Close(master)
		if slave >= 0 {
			unix.Close(slave)
		}
		return nil, -1, fmt.Errorf("set up a terminal: %w", err)
	}
	t = &typed{fd: master, terminal: true, end: -1}
	t.resize(columns, rows)
	return t, slave, nil
}

func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// resize sets the size of the terminal; zeros leave it.
func (t *typed) resize(columns, rows uint32) {
	if t == nil || !t.terminal || t.fd < 0 || columns == 0 || rows == 0 {
		return
	}
	_ = unix.IoctlSetWinsize(t.fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(min(columns, 65535)), Row: uint16(min(rows, 65535))})
}

// next returns the offset of the next byte to accept.
func (t *typed) next() int64 { return t.taken + int64(len(t.pending)) }

// idle reports whether the command has taken all that was accepted.
func (t *typed) idle() bool { return len(t.pending) == 0 }

// over reports whether no more input is accepted.
func (t *typed) over() bool { return t.fd < 0 || t.end >= 0 }

// accept adds data at an offset; what was accepted before is skipped. It returns false for a gap, and for more than the window.
func (t *typed) accept(offset int64, data []byte) bool {
	skip := t.next() - offset
	if skip < 0 {
		return false
	}
	if skip >= int64(len(data)) || t.over() {
		return true
	}
	data = data[skip:]
	if len(t.pending)+len(data) > maxPending {
		return false
	}
	if t.idle() {
		data = data[t.give(data):]
	}
	if len(data) == 0 || t.over() {
		return true
	}
	if t.room == nil {
		t.room = make([]byte, 2*maxPending)
		t.pending = t.room[:0]
	} else if cap(t.pending)-len(t.pending) < len(data) {
		t.pending = t.room[:copy(t.room, t.pending)]
	}
	t.pending = append(t.pending, data...)
	return true
}

// maxPending is the window of standard input, and a frame that was on its way.
const maxPending = channel.StdinWindow + channel.MaxData

// give writes to the command, and returns how many bytes it has taken.
func (t *typed) give(data []byte) int {
	n, err := unix.Write(t.fd, data[:min(len(data), channel.MaxData)])
	if err != nil {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			t.hangUp()
		}
		return 0
	}
	t.taken += int64(n)
	return n
}

// rest frees the memory of input, if none is pending: one that is freed whenever the command has caught up is soon needed again.
func (t *typed) rest() {
	if t != nil && t.idle() {
		t.pending, t.room = nil, nil
	}
}

// endAt ends standard input behind all that was accepted. It returns false for a gap.
func (t *typed) endAt(offset int64) bool {
	if offset > t.next() {
		return false
	}
	if t.end < 0 {
		t.end = t.next()
	}
	t.settle()
	return true
}

// watch returns what wait polls. Even with no data to write, poll reports that the command has closed a pipe.
func (t *typed) watch(list []watched) []watched {
	if t == nil || t.fd < 0 {
		return list
	}
	w := watched{fd: t.fd, ready: t.feed}
	if len(t.pending) > 0 {
		w.events = unix.POLLOUT
	}
	if t.terminal && w.events == 0 {
		return list // its stream reads the same terminal
	}
	return append(list, w)
}

// feed writes at most one piece to the command.
func (t *typed) feed(revents int16) {
	if revents&unix.POLLERR != 0 && !t.terminal {
		t.hangUp() // the read end is closed
		return
	}
	if len(t.pending) == 0 {
		return
	}
	if n := t.give(t.pending); t.fd >= 0 {
		t.pending = t.pending[n:]
	}
	t.settle()
}

// settle closes a pipe once all of an ended input was written. A terminal stays open: its user sends the end-of-file character.
func (t *typed) settle() {
	if t.end >= 0 && len(t.pending) == 0 && !t.terminal {
		t.hangUp()
	}
}

// hangUp closes standard input.
func (t *typed) hangUp() {
	if t == nil || t.fd < 0 {
		return
	}
	unix.Close(t.fd)
	t.fd, t.pending, t.room = -1, nil, nil
	if t.end < 0 {
		t.end = t.taken
	}
}
