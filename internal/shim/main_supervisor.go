package shim

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// mainSupervisor is one run of the main process. It is an exec without journal, lock and fence: it runs again with each start of the
// container, and its end is the end of the container, which the engine stores.
//
//   - It exits with the main process's exit code once that process has exited and its output is stored. The kernel kills the remaining
//     process tree with the PID namespace.
//   - On a stop it sends TERM to the whole tree. The engine sends KILL; its grace period started with the same stop.
type mainSupervisor struct {
	options
	sig      *signals
	logDir   int
	streams  [2]*stream
	pid      int
	exited   bool
	status   unix.WaitStatus
	stopping bool
	retryAt  time.Time // next retry of a write after a full disk; zero: none
}

// runMain is the main function of the main process's supervisor. It returns the main process's exit code, 128 + signal if a signal killed
// it, and 126 or 127 if it could not be started.
func runMain(at Places, o options) int {
	score := startingOOMScore()
	s := &mainSupervisor{options: o}
	err := s.prepare(at)
	if err != nil {
		say("start the main process: %v", err)
		return exitCannotRun
	}
	if s.sig.consume(sandboxStops) {
		return stoppedEarly
	}
	if why := s.launch(); why != nil {
		s.refuse(why)
		return why.exitCode
	}
	score.settle(s.pid)
	return s.loop()
}

func (s *mainSupervisor) prepare(at Places) error {
	var err error
	if s.sig, err = becomeSupervisor(); err != nil {
		return err
	}
	if s.logDir, err = openDir(at.Logs); err != nil {
		return err
	}
	names := [2]string{execjournal.StdoutName(execid.Main), execjournal.StderrName(execid.Main)}
	for i, name := range names {
		if s.streams[i], err = continueLog(s.logDir, name, s.logLimit); err != nil {
			return err
		}
	}
	return nil
}

// continueLog opens a log that earlier starts of the container have written to. A log larger than its limit has its marker already.
func continueLog(logs int, name string, limit int64) (*stream, error) {
	fd, err := openLog(logs, name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return &stream{pipe: -1, log: fd, dir: logs, limit: limit, taken: min(st.Size, limit), mark: st.Size <= limit}, nil
}

// launch opens the main process's three descriptors and starts it.
func (s *mainSupervisor) launch() *startError {
	who, err := identify("/etc", s.user, s.defaultUser)
	if err != nil {
		return cannotRun("%v", err)
	}
	if s.hardened {
		if err := startUnprivileged(); err != nil {
			return cannotRun("give up privileges: %v", err)
		}
	}
	null, why := openNull()
	if why != nil {
		return why
	}
	defer unix.Close(null)
	files := [3]int{null}
	for i, st := range s.streams {
		if err := shareLog(s.logDir, st.log, who); err != nil {
			return cannotRun("%v", err)
		}
		end, err := st.open(who)
		if err != nil {
			return cannotRun("%v", err)
		}
		defer unix.Close(end)
		files[i+1] = end
	}
	s.pid, why = start(s.command, s.dir, who, environment(os.Environ(), who, nil), files)
	return why
}

// refuse writes to the main process's stderr log and to the container's log why the main process was not started.
func (s *mainSupervisor) refuse(why *startError) {
	say("start the main process: %v", why)
	errOut := s.streams[1]
	errOut.accept([]byte("agbox-shim: start the main process: " + execjournal.Sentence(why.why) + "\n"))
	_ = errOut.sync() // the container's log has the line as well
}

// loop runs until the main process has exited and its output is stored, and returns the exit code.
func (s *mainSupervisor) loop() int {
	buf := make([]byte, 64<<10)
	for {
		s.reap()
		if s.sig.consume(sandboxStops) {
			s.stopping, s.retryAt = true, time.Time{}
			tree{root: os.Getpid()}.terminate()
		}
		s.retry(time.Now())
		if s.exited && s.retryAt.IsZero() && s.stored(buf) {
			return s.code()
		}
		if s.retryAt.IsZero() && anyPending(s.streams[:]) {
			s.later()
		}
		copyOutput(s.sig, nil, s.streams[:], s.retryAt, buf)
	}
}

func (s *mainSupervisor) reap() {
	for pid, ws := range deadChildren {
		if pid == s.pid {
			s.exited, s.status = true, ws
		}
	}
}

// stored stores and syncs the output of the main process and reports whether that is done. On a full disk it schedules a retry, unless the
// container stops.
func (s *mainSupervisor) stored(buf []byte) bool {
	for _, st := range s.streams {
		ok := st.drain(buf)
		if err := st.sync(); err != nil {
			ok = false
		}
		if !ok && !s.stopping {
			s.later()
			return false
		}
		if !ok {
			say("the disk is full: the last output of the main process is missing")
		}
	}
	return true
}

func (s *mainSupervisor) later() { s.retryAt = time.Now().Add(retryEvery) }

// retry flushes output that a full disk refused, once retryAt has passed.
func (s *mainSupervisor) retry(now time.Time) {
	if s.retryAt.IsZero() || now.Before(s.retryAt) {
		return
	}
	s.retryAt = time.Time{}
	for _, st := range s.streams {
		st.flush()
	}
}

func (s *mainSupervisor) code() int {
	if s.status.Signaled() {
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}
