package shim

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// endable tells whether the end can be recorded now.
func (s *supervisor) endable() bool {
	if !s.exited || s.kill.why != notEnding && !s.alone {
		return false
	}
	return s.retryAt.IsZero()
}

// finish stores what the command wrote and then records its end. When the disk is full it is called again later.
func (s *supervisor) finish(buf []byte) {
	j := s.result()
	for _, st := range s.copied() {
		stored := st.drain(buf)
		if err := st.sync(); err != nil {
			stored = false
		}
		if !stored && !s.giveUp {
			s.later()
			return
		}
		j.LogLost = j.LogLost || !stored
	}
	j.LogLimit = j.LogLimit || s.over()
	if out, errOut := s.streams[0], s.streams[1]; out != nil && errOut != nil {
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

func (s *supervisor) later() { s.retryAt = time.Now().Add(retryEvery) }

// result is the journal's end without what the logs add.
func (s *supervisor) result() execjournal.Journal {
	j := s.rec.journal
	j.EndedAtNanos = s.endedAt.UnixNano()
	j.Cancelled = s.kill.why == byCancel
	j.Stopped = s.kill.why == byStop
	j.LogLimit = s.kill.why == byLogLimit
	if s.pid == 0 {
		return j // it never ran
	}
	if kills := oomKills() - s.oom; kills > 0 {
		j.OOMKills, j.OOMLimitBytes = kills, memoryLimit()
	}
	if s.status.Signaled() {
		j.Signal = int(s.status.Signal())
		j.ExitCode = 128 + j.Signal
		j.OOM = s.status.Signal() == unix.SIGKILL && !s.kill.killed && j.OOMKills > 0
	} else {
		j.ExitCode = s.status.ExitStatus()
	}
	return j
}

// retry tries to store again what a full disk refused.
func (s *supervisor) retry(now time.Time) {
	if s.retryAt.IsZero() || now.Before(s.retryAt) {
		return
	}
	s.retryAt = time.Time{}
	for _, st := range s.copied() {
		st.flush()
	}
}

// idle tells whether nothing more can come. Only a stop, and a cancel on a full disk, cut output short.
func (s *supervisor) idle() bool {
	if s.stopping || s.alone && s.giveUp {
		return true
	}
	for _, st := range s.streams {
		if st != nil && (st.pipe >= 0 || len(st.pending) > 0) {
			return false
		}
	}
	return s.alone
}

// lastWords takes what was written into the outbox until now, and removes it. It returns false as long as a full disk is to be waited for.
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
