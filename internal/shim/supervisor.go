package shim

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// supervisor is one exec after its journal was created.
//
//   - It records the end when the command has exited and its output is stored; if the supervisor ended the command, only when no process of
//     its tree is left.
//   - If the command has exited before a cancel, stop or log limit takes effect, its recorded end stays unchanged.
//   - Standard input is empty, or the content of the inbox; feeding it and copying output do not wait for each other.
//   - After the end is recorded, it copies output of children that outlive the command and reaps them, until the last one has exited.
type supervisor struct {
	job
	ctl     int
	lock    int // of the exec, for release
	rec     *recorder
	request execjournal.Request
	kill    killer
	oom     int64 // OOM kills when the command started

	deadline time.Time // the end of the timeout, by the monotonic clock; zero: none
	endedAt  time.Time
	alone    bool // no descendant is left, so none can appear
	recorded bool // the end is in the journal
	hungUp   bool // the terminal's session got HUP
}

// loop runs until the end is recorded and no process is left whose output could arrive. buf is for that output.
func (s *supervisor) loop(buf []byte) {
	for {
		s.reap()
		now := time.Now()
		s.obey(now)
		if !s.alone {
			s.kill.step(now)
		}
		s.retry(now)
		s.relay(now)
		if !s.recorded && s.endable() {
			s.finish(buf)
		}
		s.words.settle()
		if s.recorded && s.idle() && s.lastWords(buf) {
			return
		}
		s.wait(s.due(), buf)
	}
}

// due returns when loop has something to do without a signal; zero: never.
func (s *supervisor) due() time.Time {
	switch {
	case s.alone:
		return s.liveUntil
	case s.kill.why != notEnding:
		return s.kill.due
	case s.exited:
		return s.liveUntil
	}
	return earlier(s.deadline, s.liveUntil)
}

// reap reaps every child that has died. It runs before obey: a cancel that arrives together with the command's exit has no effect.
func (s *supervisor) reap() {
	if s.alone {
		return
	}
	s.alone = deadChildren(func(pid int, ws unix.WaitStatus) {
		if pid != s.pid {
			s.kill.hurry()
			return
		}
		s.exited, s.status, s.endedAt = true, ws, time.Now()
		s.in.hangUp() // children that outlive the command get no input
		if s.typed != nil && !s.typed.terminal {
			s.typed.hangUp()
		}
	})
}

// obey handles the signals from init, an exceeded log limit and the end of the timeout.
func (s *supervisor) obey(now time.Time) {
	if s.sig.consume(askedToEnd) {
		s.in.observe()
		s.obeyInput()
		s.applyQuota()
		if cancelled(s.ctl, s.request) {
			s.end(byCancel, now)
		}
	}
	if !s.stopping && stops() {
		s.stopping = true
		s.end(byStop, now)
		if s.recorded && !s.alone {
			s.kill.tree.terminate() // the container does not wait for these processes
		}
	}
	if s.over() {
		s.end(byLogLimit, now)
	}
	if !s.deadline.IsZero() && !now.Before(s.deadline) {
		s.end(byTimeout, now)
	}
}

// obeyInput ends standard input, or hangs up the terminal, if agboxd has asked for it.
func (s *supervisor) obeyInput() {
	if s.typed == nil {
		return
	}
	id := s.request.ExecID
	if closed, err := execjournal.Exists(s.ctl, execjournal.ClosedName(id)); err == nil && closed {
		s.typed.endAt(s.typed.next())
	}
	if hangup, err := execjournal.Exists(s.ctl, execjournal.HangupName(id)); err == nil && hangup && !s.hungUp {
		s.hungUp = true
		s.hangUpTerminal()
	}
}

func (s *supervisor) end(why reason, now time.Time) {
	if (why == byCancel || why == byStop) && !s.giveUp {
		s.giveUp, s.retryAt = true, time.Time{}
	}
	if !s.exited {
		s.kill.begin(why, now)
	}
}

// over reports whether the command exceeded a log limit whose action is to end it.
func (s *supervisor) over() bool {
	dropped := func(st *stream) bool { return st.dropped > 0 }
	return s.request.LogLimitAction != execjournal.LogLimitDrop && slices.ContainsFunc(s.streams, dropped)
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
		st.closed = true
	}
}

// endable reports whether the end can be recorded now: the command has exited, a killed process tree is gone, and no write waits for a full
// disk.
func (s *supervisor) endable() bool {
	return s.exited && (s.kill.why == notEnding || s.alone) && s.retryAt.IsZero()
}

// finish stores and syncs the command's output, then records the end. If the disk is full, it schedules a retry.
func (s *supervisor) finish(buf []byte) {
	j := s.result()
	done, lost := s.store(buf)
	if !done {
		return
	}
	j.LogLost = lost
	j.LogLimit = j.LogLimit || s.over()
	out, errOut := s.streams[0], s.streams[1]
	j.StdoutBytes, j.StderrBytes = out.written, errOut.written
	j.StdoutDroppedBytes, j.StderrDroppedBytes = out.beyond(), errOut.beyond()
	if err := s.rec.end(j); err != nil {
		say("exec %s: record the end: %v", j.ExecID, err)
		s.later()
		return
	}
	s.recorded, s.retryAt = true, time.Time{}
	s.endLive()
}

// result returns the journal's end, without the fields that finish fills in from the logs.
func (s *supervisor) result() execjournal.Journal {
	j := s.rec.journal
	j.EndedAtNanos = s.endedAt.UnixNano()
	j.Cancelled = s.kill.why == byCancel
	j.Stopped = s.kill.why == byStop
	j.LogLimit = s.kill.why == byLogLimit
	if s.kill.why == byTimeout {
		j.TimeoutMillis = s.request.TimeoutMillis
	}
	if s.pid == 0 {
		return j // the command was never started
	}
	if kills := oomKills() - s.oom; kills > 0 {
		j.OOMKills, j.OOMLimitBytes = kills, memoryLimit()
	}
	j.ExitCode = exitCode(s.status)
	if s.status.Signaled() {
		j.Signal = int(s.status.Signal())
		j.OOM = s.status.Signal() == unix.SIGKILL && !s.kill.killed && j.OOMKills > 0
	}
	return j
}

// idle reports whether no more output can come: no descendant is left and all output is stored. A stop, and a cancel while the disk is
// full, discard the remaining output.
func (s *supervisor) idle() bool {
	if s.stopping || s.alone && s.giveUp {
		return true
	}
	return s.alone && !slices.ContainsFunc(s.streams, func(st *stream) bool { return st.pipe >= 0 || len(st.pending) > 0 || len(st.over) > 0 })
}

// lastWords stores what the outbox holds now and removes the outbox. It returns false while it has to wait for space on a full disk.
func (s *supervisor) lastWords(buf []byte) bool {
	if s.words == nil {
		return true
	}
	if !s.words.drain(buf) && !s.giveUp && !s.stopping {
		return false
	}
	s.words.remove()
	return true
}
