package main

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// stream copies one pipe of the command into its log.
//
// The log holds exactly the first limit bytes; what comes after is read and dropped, so that the command can act on its
// TERM. A byte that was read is never dropped for lack of space: it waits in pending, and nothing is read meanwhile, so
// that the command waits too.
type stream struct {
	pipe    int // read end, non-blocking; -1 after the end
	log     int
	limit   int64 // 0: none
	written int64
	over    bool   // there was more than limit
	pending []byte // read, but not yet in the log
}

// openStream makes a pipe that belongs to who, so that "> /dev/stdout" works, and returns its write end.
func openStream(log int, limit int64, who identity) (*stream, int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("make a pipe: %w", err)
	}
	err := unix.SetNonblock(p[0], true) // the write end is another description and stays blocking
	if err == nil && int(who.uid) != unix.Geteuid() {
		err = unix.Fchown(p[1], int(who.uid), int(who.gid))
	}
	if err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, -1, fmt.Errorf("set up a pipe: %w", err)
	}
	return &stream{pipe: p[0], log: log, limit: limit}, p[1], nil
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
	keep := buf[:n]
	if room := s.limit - s.written; s.limit > 0 && int64(n) > room {
		s.over = true
		keep = keep[:room]
	}
	s.pending = slices.Clone(s.store(keep)) // buf is not ours to keep
	return n
}

// flush stores what is pending, as far as the disk takes it.
func (s *stream) flush() { s.pending = s.store(s.pending) }

// store appends data to the log and returns what the disk did not take.
func (s *stream) store(data []byte) []byte {
	for len(data) > 0 {
		n, err := unix.Write(s.log, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		s.written += int64(n)
		data = data[n:]
	}
	return data
}

// drain stores what the pipe holds now, and no more: a child that outlives the command may write for ever. It returns
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

// sync makes the log durable.
func (s *stream) sync() error {
	for s.written > 0 {
		if err := unix.Fdatasync(s.log); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}
