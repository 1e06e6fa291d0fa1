package shim

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// retryEvery is the pause between two attempts to write to a full disk.
const retryEvery = 500 * time.Millisecond

// supervisor is one exec after its journal was created.
//
//   - It records the end when the command has exited and its output is stored; if the supervisor ended the command, only when no process of
//     its tree is left.
//   - If the command has exited before a cancel, stop or log limit takes effect, its recorded end stays unchanged.
//   - Standard input is empty, or the content of the inbox; feeding it and copying output do not wait for each other.
//   - After the end is recorded, it copies output of children that outlive the command and reaps them, until the last one has exited.
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

	pid      int // process ID of the command; 0: it was not started
	exited   bool
	endedAt  time.Time
	status   unix.WaitStatus
	alone    bool      // no descendant is left, so none can appear
	giveUp   bool      // cancelled or stopped: do not wait for space on the disk
	stopping bool      // the container stops
	recorded bool      // the end is in the journal
	retryAt  time.Time // next retry of a write after a full disk; zero: none
}

// loop runs until the end is recorded and no process is left whose output could arrive.
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

// reap reaps every child that has died. It runs before obey: a cancel that arrives together with the command's exit has no effect.
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
			s.in.hangUp() // children that outlive the command get no input
		default:
			s.kill.hurry()
		}
	}
}

// obey handles the signals from init and an exceeded log limit.
func (s *supervisor) obey(now time.Time) {
	if s.sig.consume(askedToEnd) {
		s.in.observe()
		s.applyQuota()
		if cancelled(s.ctl, s.request) {
			s.end(byCancel, now)
		}
	}
	if s.sig.consume(sandboxStops) {
		s.stopping = true
		s.end(byStop, now)
		if s.recorded && !s.alone {
			s.kill.tree.terminate() // the container does not wait for these processes
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

// over reports whether the command exceeded a log limit whose action is to end it.
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

// applyQuota stops storing output once the sandbox has used up its quota. An agent's output is its conversation and is kept; its outbox is
// closed instead.
func (s *supervisor) applyQuota() {
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

// wait blocks until a signal, output, space for input, or the next due time, and copies what is available.
func (s *supervisor) wait(buf []byte) {
	if s.retryAt.IsZero() && anyPending(s.copied()) {
		s.later()
	}
	due := s.retryAt
	if s.kill.why != notEnding && !s.alone {
		due = earlier(due, s.kill.due)
	}
	copyOutput(s.sig, s.in, s.copied(), due, buf)
}

// copied returns the streams that are copied into files: stdout and stderr, if the command was started, and the outbox, if there is one.
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

// earlier returns the earlier of two times; a zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
