package shim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// stream copies one pipe of the command into its log.
//
// The log holds exactly the first limit bytes of output; what comes after is read and dropped, so that the command can go
// on, or act on its TERM. With mark, one line at the end of the log says so. A byte that was read is never dropped for lack of space: it waits in pending, and nothing is read meanwhile, so
// that the command waits too.
type stream struct {
	pipe    int // read end, non-blocking; -1 before the start and after the end
	log     int
	dir     int    // of the log
	limit   int64  // 0: none
	closed  bool   // the sandbox's quota is used up: the bytes stored so far are the limit
	mark    bool   // the first byte that is dropped leaves a marker
	taken   int64  // bytes of output that are in the log or pending
	dropped int64  // bytes of output that are past the limit
	written int64  // bytes that we added to the log
	pending []byte // read, but not yet in the log
	yields  bool   // pending waits for outputRoom
}

// open makes a pipe that belongs to who, so that "> /dev/stdout" works, and returns its write end.
func (s *stream) open(who passwd.Identity) (int, error) {
	p, err := newPipe(who, 0)
	if err != nil {
		return -1, err
	}
	s.pipe = p[0]
	return p[1], nil
}

// newPipe makes a pipe that belongs to who, of which the end ours does not block. The other end is another description and
// stays blocking.
func newPipe(who passwd.Identity, ours int) (p [2]int, err error) {
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return p, fmt.Errorf("make a pipe: %w", err)
	}
	err = unix.SetNonblock(p[ours], true)
	if err == nil && int(who.UID) != unix.Geteuid() {
		err = unix.Fchown(p[1], int(who.UID), int(who.GID))
	}
	if err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return p, fmt.Errorf("set up a pipe: %w", err)
	}
	return p, nil
}

// readable tells whether poll(2) should wait for the pipe.
func (s *stream) readable() bool { return s.pipe >= 0 && len(s.pending) == 0 }

// pump reads once, at most len(buf), and stores it. It returns the number of bytes read; 0 when there is nothing now.
func (s *stream) pump(buf []byte) int {
	n, err := unix.Read(s.pipe, buf)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0
	}
	if n <= 0 {
		unix.Close(s.pipe)
		s.pipe = -1
		return 0
	}
	s.accept(buf[:n])
	return n
}

// accept stores output, or drops what is past the limit. Nothing may be pending.
func (s *stream) accept(data []byte) {
	keep, end := data, ""
	limit, bounded := s.limit, s.limit > 0
	if s.closed {
		limit, bounded = s.taken, true
	}
	if room := limit - s.taken; bounded && int64(len(data)) > room {
		if s.mark && s.dropped == 0 {
			end = execjournal.DroppedMarker(limit)
		}
		keep = data[:room]
		s.dropped += int64(len(data) - len(keep))
	}
	s.taken += int64(len(keep))
	s.pending = slices.Concat(s.store(keep), []byte(end)) // data is not ours to keep
	s.flush()
}

// flush stores what is pending, as far as the disk takes it.
func (s *stream) flush() {
	if s.yields && !hasRoom(s.dir) {
		return
	}
	s.yields = false
	s.pending = s.store(s.pending)
}

// outputRoom is the space, in bytes, that must be free before output is stored again that a used-up quota refused: two pieces of agboxd's
// ballast. agboxd releases one for a commit; output must not take it from the commit, nor from the ends of other execs.
const outputRoom = 1 << 20

// hasRoom reports whether outputRoom is free for files in dir, which nothing but allocating it tells where there is a quota.
func hasRoom(dir int) bool {
	fd, err := unix.Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, execjournal.PrivateMode)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, outputRoom)
		unix.Close(fd)
	}
	return !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) // a file system that can't tell is written to
}

// store appends data to the log and returns what the disk did not take.
func (s *stream) store(data []byte) []byte {
	for len(data) > 0 {
		n, err := unix.Write(s.log, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			s.yields = errors.Is(err, unix.EDQUOT)
			break
		}
		s.written += int64(n)
		data = data[n:]
	}
	return data
}

// drain stores what the pipe holds now, and no more: a child that outlives the command may write forever. It returns
// false when the disk is full.
func (s *stream) drain(buf []byte) bool {
	s.flush()
	if !s.readable() {
		return len(s.pending) == 0
	}
	left, err := unix.IoctlGetInt(s.pipe, unix.TIOCINQ)
	if err != nil {
		left = 1 << 20 // a pipe's default maximum
	}
	for left > 0 && s.readable() {
		n := s.pump(buf[:min(len(buf), left)])
		if n == 0 {
			break
		}
		left -= n
	}
	return len(s.pending) == 0
}

// anyPending tells whether the disk did not take something.
func anyPending(streams []*stream) bool {
	for _, st := range streams {
		if len(st.pending) > 0 {
			return true
		}
	}
	return false
}

// copyOutput sleeps until a signal, output, room for input, or due (zero: never), and copies what there is: one piece of each
// stream, so that a flood delays no signal.
func copyOutput(sig *signals, in *feeder, streams []*stream, due time.Time, buf []byte) {
	fds := []unix.PollFd{{Fd: int32(sig.fd), Events: unix.POLLIN}}
	polled := []*stream{nil}
	for _, st := range streams {
		if st.readable() {
			fds = append(fds, unix.PollFd{Fd: int32(st.pipe), Events: unix.POLLIN})
			polled = append(polled, st)
		}
	}
	input, feeds := in.interest()
	if feeds {
		fds = append(fds, input)
	}
	if n, err := unix.Poll(fds, pollTimeout(due)); n <= 0 || err != nil {
		return
	}
	sig.clear()
	if last := fds[len(fds)-1]; feeds && last.Revents != 0 {
		in.feed(last.Revents)
	}
	for i, st := range polled {
		if st != nil && fds[i].Revents != 0 {
			st.pump(buf)
		}
	}
}

// pollTimeout is in milliseconds, rounded up; -1 forever.
func pollTimeout(due time.Time) int {
	if due.IsZero() {
		return -1
	}
	return int(max(0, time.Until(due)+time.Millisecond-1) / time.Millisecond)
}

// sync makes the log durable.
func (s *stream) sync() error {
	for s.written > 0 {
		if err := unix.Fdatasync(s.log); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}
