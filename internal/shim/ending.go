package shim

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// endable reports whether the end can be recorded now: the command has exited, a killed process tree is gone, and no write waits for a full
// disk.
func (s *supervisor) endable() bool {
	if !s.exited || s.kill.why != notEnding && !s.alone {
		return false
	}
	return s.retryAt.IsZero()
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
	if len(s.streams) == 2 {
		out, errOut := s.streams[0], s.streams[1]
		j.StdoutBytes, j.StderrBytes = out.written, errOut.written
		j.StdoutDroppedBytes, j.StderrDroppedBytes = out.dropped, errOut.dropped
	}
	if err := s.rec.end(j); err != nil {
		say("exec %s: record the end: %v", j.ExecID, err)
		s.later()
		return
	}
	s.recorded, s.retryAt = true, time.Time{}
}

// result returns the journal's end, without the fields that finish fills in from the logs.
func (s *supervisor) result() execjournal.Journal {
	j := s.rec.journal
	j.EndedAtNanos = s.endedAt.UnixNano()
	j.Cancelled = s.kill.why == byCancel
	j.Stopped = s.kill.why == byStop
	j.LogLimit = s.kill.why == byLogLimit
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
	for _, st := range s.streams {
		if st.pipe >= 0 || len(st.pending) > 0 {
			return false
		}
	}
	return s.alone
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
