package shim

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// retryEvery is the pause between two tries to write to a full disk.
const retryEvery = 500 * time.Millisecond

// supervisor is one exec after its journal was created.
//
//   - The end is recorded when the command has ended and what it wrote is stored; if we ended it, only when nothing of its
//     tree is left.
//   - An end that came by itself stays what it is, whatever is asked later.
//   - Standard input is nothing, or what the inbox holds, which neither waits for the other.
//   - Afterwards it goes on copying for children that outlive the command, and stays their reaper until the last is gone.
type supervisor struct {
	ctl     int
	logs    [2]int
	logDir  int
	sig     *signals
	rec     *recorder
	request execjournal.Request
	streams [2]*stream // nil if the command never started
	in      *feeder    // nil without an inbox
	words   *outbox    // nil without an inbox
	kill    killer
	oom     int64 // OOM kills when the command started

	pid      int // of the command
	exited   bool
	endedAt  time.Time
	status   unix.WaitStatus
	alone    bool      // no descendant is left, and so none can come
	giveUp   bool      // cancelled or stopped: wait no longer for space on the disk
	stopping bool      // the container stops
	recorded bool      // the end is in the journal
	retryAt  time.Time // the disk was full; zero: it is not
}

// loop returns when the end is recorded and nobody is left whose output could come.
func (s *supervisor) loop() {
	buf := make([]byte, 64<<10)
	for {
		s.reap()
		now := time.Now()
		s.obey(now)
		if !s.alone {
			s.kill.step(now)
		}
		s.retry(now)
		s.in.retry(now)
		if !s.recorded && s.endable() {
			s.finish(buf)
		}
		s.words.settle()
		if s.recorded && s.idle() && s.lastWords(buf) {
			return
		}
		s.wait(buf)
	}
}

// reap takes every child that has died. It runs before obey: a cancel that comes together with the end is too late.
func (s *supervisor) reap() {
	for !s.alone {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			s.alone = true
		case err != nil || pid == 0:
			return
		case pid == s.pid:
			s.exited, s.status, s.endedAt = true, ws, time.Now()
			s.in.hangUp() // children that outlive it are not fed
		default:
			s.kill.hurry()
		}
	}
}

// obey acts on what init, or the output, asked for.
func (s *supervisor) obey(now time.Time) {
	if s.sig.take(askedToEnd) {
		s.in.look()
		s.heedQuota()
		if cancelled(s.ctl, s.request) {
			s.end(byCancel, now)
		}
	}
	if s.sig.take(sandboxStops) {
		s.stopping = true
		s.end(byStop, now)
		if s.recorded && !s.alone {
			s.kill.tree.terminate() // a last word; the container does not wait for them
		}
	}
	if s.over() {
		s.end(byLogLimit, now)
	}
}

func (s *supervisor) end(why reason, now time.Time) {
	if why != byLogLimit && !s.giveUp {
		s.giveUp, s.retryAt = true, time.Time{}
	}
	if !s.exited {
		s.kill.begin(why, now)
	}
}

// over tells whether the command wrote more than it may.
func (s *supervisor) over() bool {
	if s.request.LogLimitAction == execjournal.LogLimitDrop {
		return false
	}
	for _, st := range s.streams {
		if st != nil && st.dropped > 0 {
			return true
		}
	}
	return false
}

// heedQuota stops storing output once the sandbox has used up its quota. An agent's output is its conversation, and is kept; its
// outbox takes no more.
func (s *supervisor) heedQuota() {
	if full, err := execjournal.Exists(s.ctl, execjournal.FullName); err != nil || !full {
		return
	}
	if s.request.Inbox {
		if s.words != nil {
			s.words.close()
		}
		return
	}
	for _, st := range s.streams {
		if st != nil {
			st.closed = true
		}
	}
}

// wait sleeps until a signal, output, room for input, or the next due time, and copies what there is.
func (s *supervisor) wait(buf []byte) {
	if s.retryAt.IsZero() && anyPending(s.copied()) {
		s.later()
	}
	due := earlier(s.retryAt, s.in.due())
	if s.kill.why != notEnding && !s.alone {
		due = earlier(due, s.kill.due)
	}
	copyOutput(s.sig, s.in, s.copied(), due, buf)
}

// copied are the streams that are copied into files; a command that never started has none.
func (s *supervisor) copied() []*stream {
	all := make([]*stream, 0, len(s.streams)+1)
	for _, st := range s.streams {
		if st != nil {
			all = append(all, st)
		}
	}
	if s.words != nil {
		all = append(all, s.words.stream)
	}
	return all
}

// earlier returns the earlier of two times, of which a zero one is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
