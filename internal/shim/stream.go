package shim

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// stream copies one pipe of the command into its log.
//
// The log holds exactly the first limit bytes of output. stream reads and drops the rest, so that the command does not block and can handle
// its TERM. With mark, one line at the end of the log records this. Output that was read before the limit is never dropped because the disk
// is full: it stays in pending, and stream reads no more until it is written, so the command blocks too.
type stream struct {
	pipe    int // read end, non-blocking; -1 before the start and after the end of output
	log     int
	dir     int    // directory of the log
	limit   int64  // maximum bytes of output in the log; 0: unlimited
	closed  bool   // the sandbox's quota is used up: taken is the limit
	mark    bool   // write a marker line when the first byte is dropped
	taken   int64  // bytes of output in the log or pending
	dropped int64  // bytes of output dropped after the limit
	written int64  // bytes written to the log, including the marker
	pending []byte // read, but not yet in the log
	holds   bool   // output beyond the limit waits for readers on the live channel, and the command with it
	over    []byte // such output, which not all of them were sent
	overAt  int64  // offset of over in the output
	relayed int64  // bytes beyond the limit that they were sent
	final   int    // bytes that drain has yet to read; -1: no drain is under way
	yields  bool   // pending waits until outputRoom bytes are free
	times   *lineTimes
}

// open lets who read the log. It creates a pipe owned by who, so that "> /dev/stdout" works, and returns its write end.
func (s *stream) open(who passwd.Identity) (int, error) {
	if err := shareLog(s.dir, s.log, who); err != nil {
		return -1, err
	}
	p, err := newPipe(who, 0)
	if err != nil {
		return -1, err
	}
	s.pipe = p[0]
	return p[1], nil
}

// beyond returns the number of bytes of output that are not in the log.
func (s *stream) beyond() int64 { return s.dropped + s.relayed }

// newPipe creates a pipe owned by who. The end with index ours is non-blocking; the other end, a separate open file description, stays
// blocking.
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

// readable reports whether poll(2) should wait for the pipe.
func (s *stream) readable() bool { return s.pipe >= 0 && len(s.pending) == 0 && len(s.over) == 0 }

// pump reads once, at most len(buf) bytes, and stores them. It returns the number of bytes read; 0 if none are available.
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

// accept stores output, and drops or holds what exceeds the limit. pending and over must be empty.
func (s *stream) accept(data []byte) {
	keep, end := data, ""
	limit, bounded := s.limit, s.limit > 0
	if s.closed {
		limit, bounded = s.taken, true
	}
	if room := limit - s.taken; bounded && int64(len(data)) > room {
		if s.mark && s.beyond() == 0 {
			end = execjournal.DroppedMarker(limit)
		}
		keep = data[:room]
		if s.holds {
			s.over, s.overAt = slices.Clone(data[room:]), s.taken+room+s.beyond()
		} else {
			s.dropped += int64(len(data) - len(keep))
		}
	}
	s.times.note(keep)
	s.taken += int64(len(keep))
	s.pending = slices.Concat(s.store(keep), []byte(end)) // the caller reuses data
	s.flush()
}

// flush writes pending output, as much as the disk accepts.
func (s *stream) flush() {
	if s.yields && !hasRoom(s.dir) {
		return
	}
	s.yields = false
	s.pending = s.store(s.pending)
}

// outputRoom is the space, in bytes, that must be free before flush retries output that a used-up disk quota refused: two pieces of
// agboxd's ballast. agboxd releases one piece for a commit; output must not take that space from the commit or from the ends of other
// execs.
const outputRoom = 1 << 20

// hasRoom reports whether outputRoom bytes are free for files in dir. With a disk quota, only an allocation shows this.
func hasRoom(dir int) bool {
	fd, err := unix.Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, execjournal.PrivateMode)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, outputRoom)
		unix.Close(fd)
	}
	return !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) // other errors do not prevent the write
}

// store appends data to the log and returns the rest that the disk did not accept.
func (s *stream) store(data []byte) []byte {
	if err := s.times.write(); err != nil { // before the line, which would otherwise have the time of an earlier one
		s.yields = errors.Is(err, unix.EDQUOT)
		return data
	}
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

// drain stores the bytes that the pipe holds at the time of the call, and no more: a child that outlives the command may write forever. It
// returns false if the disk is full, or if readers on the live channel have yet to be sent some; the next call continues.
func (s *stream) drain(buf []byte) bool {
	s.flush()
	if s.final < 0 && s.pipe >= 0 {
		held, err := unix.IoctlGetInt(s.pipe, unix.TIOCINQ)
		if err != nil {
			held = 1 << 20 // default of fs.pipe-max-size
		}
		s.final = held
	}
	for s.final > 0 && s.readable() {
		n := s.pump(buf[:min(len(buf), s.final)])
		if n == 0 {
			s.final = 0
			break
		}
		s.final -= n
	}
	if len(s.pending) > 0 || len(s.over) > 0 {
		return false
	}
	s.final = -1
	return true
}

// sync makes the log durable.
func (s *stream) sync() error {
	s.times.sync()
	for s.written > 0 {
		if err := unix.Fdatasync(s.log); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}
