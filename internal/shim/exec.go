package shim

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// Exit codes of a supervisor. Any other end means that it was killed or crashed, and that its tree may still run.
const (
	settled  = 0  // nothing more to do for this exec
	tryAgain = 75 // no journal was created, for a reason that may pass (EX_TEMPFAIL)
)

// Descriptors that init gives to a supervisor. The lock is only held: it ends when init and we have both closed it.
const (
	stopFd  = 3
	startFd = 4 // readable once init has raised our score; closed by us when the command runs
	lockFd  = 5
)

// errSettled ends a supervisor before it began: nothing is to be run, and nothing is wrong.
var errSettled = errors.New("nothing to do")

// runExec is the life of a supervisor.
func runExec(at places, o options) int {
	id := o.execID
	score := startingOOMScore()
	unix.CloseOnExec(lockFd)
	sig, err := becomeSupervisor()
	var s *supervisor
	if err == nil {
		s, err = prepare(at, o, sig)
	}
	if errors.Is(err, errSettled) {
		return settled
	}
	if err != nil {
		say("exec %s: %v", id, err)
		return tryAgain
	}
	s.launch(at, o)
	score.settle(s.pid)
	s.loop()
	return settled
}

// becomeSupervisor sets up the process. From then on it knows when the container stops, also if it was told before it could
// hear: init raises stopFd before it signals.
func becomeSupervisor() (*signals, error) {
	unix.CloseOnExec(stopFd)
	unix.CloseOnExec(startFd)
	sig, err := catch()
	if err != nil {
		return nil, err
	}
	stop := []unix.PollFd{{Fd: stopFd, Events: unix.POLLIN}}
	if n, err := unix.Poll(stop, 0); err == nil && n == 1 && stop[0].Revents&unix.POLLIN != 0 {
		sig.flags[sandboxStops].Store(true)
	}
	// All that the command leaves behind stays our child, wherever it forks to.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	return sig, warmThreads(idleThreads)
}

// prepare does everything up to the journal. After it, the exec is ours and must get its end.
func prepare(at places, o options, sig *signals) (*supervisor, error) {
	id := o.execID
	ctl, err := openDir(at.ctl + "/" + execjournal.ExecDir)
	if err != nil {
		return nil, err
	}
	logs, err := openDir(at.logs)
	if err != nil {
		return nil, err
	}
	if !sameFile(lockFd, logs, execjournal.LockName(id)) {
		say("exec %s: the lock was not handed over; only init starts supervisors", id)
		return nil, errSettled
	}
	s := &supervisor{ctl: ctl, logDir: logs, sig: sig}
	s.request, err = readRequest(ctl, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errSettled // it was taken back
	}
	s.rec = newRecorder(logs, id, s.request.Nonce)
	s.rec.journal.Run = o.run
	if errors.Is(err, execjournal.ErrMalformed) {
		return nil, s.refuse(err)
	}
	if err != nil {
		return nil, err
	}
	return s, s.claim(logs, id, cmp.Or(s.request.User, o.user), o.defaultUser)
}

// claim opens the logs and creates the journal. The logs are shared with the user here, so that a full disk delays the start and does not
// fail it; a user that can't be identified fails it later.
func (s *supervisor) claim(logs int, id, user, defaultUser string) error {
	who, unknown := identify("/etc", user, defaultUser)
	for i, name := range []string{execjournal.StdoutName(id), execjournal.StderrName(id)} {
		fd, err := openLog(logs, name)
		if errors.Is(err, execjournal.ErrMalformed) {
			return s.refuse(err)
		}
		if err != nil {
			return err
		}
		s.logs[i] = fd
		if unknown != nil {
			continue
		}
		if err := shareLog(logs, fd, who); errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	if s.sig.take(sandboxStops) {
		return errSettled // the container stops: never start after that
	}
	err := s.rec.begin(time.Now().UnixNano())
	if errors.Is(err, fs.ErrExist) {
		return errSettled // somebody else was first
	}
	if err != nil {
		return fmt.Errorf("create the journal: %w", err)
	}
	for _, fd := range s.logs { // nobody wrote there for this exec before
		if err := unix.Ftruncate(fd, 0); err != nil {
			say("exec %s: truncate a log: %v", id, err)
		}
	}
	return nil
}

// refuse records that the exec can't be started, if its nonce is known.
func (s *supervisor) refuse(why error) error {
	say("exec %s: %v", s.rec.journal.ExecID, why)
	if s.rec.journal.Nonce == "" {
		return errSettled
	}
	err := s.rec.refuse(time.Now().UnixNano(), exitCannotRun, why.Error())
	if err == nil || errors.Is(err, fs.ErrExist) {
		return errSettled
	}
	return err
}

// launch starts the command, unless it was cancelled before, and records the end if it can't.
//
// The cancel file is read after the journal exists, and init signals only when the journal exists: so a cancel that is
// written at any time is seen here or there.
func (s *supervisor) launch(at places, o options) {
	s.kill = killer{tree: tree{root: os.Getpid()}, grace: time.Duration(s.request.CancelGraceMillis) * time.Millisecond}
	s.oom = oomKills()
	s.stopping = s.sig.take(sandboxStops)
	if s.stopping {
		s.kill.why = byStop
	} else if cancelled(s.ctl, s.request) {
		s.kill.why = byCancel
	}
	if s.kill.why != notEnding {
		s.neverRan(128+int(unix.SIGTERM), int(unix.SIGTERM), "")
		return
	}
	who, err := identify("/etc", cmp.Or(s.request.User, o.user), o.defaultUser)
	if err != nil {
		s.neverRan(exitCannotRun, 0, err.Error())
		return
	}
	if o.hardened {
		if err := startUnprivileged(); err != nil {
			s.neverRan(exitCannotRun, 0, "give up privileges: "+err.Error())
			return
		}
	}
	if why := s.spawn(at, who); why != nil {
		s.in.hangUp()
		s.neverRan(why.exitCode, 0, why.why)
	}
}

// neverRan sets the end of a command that did not start.
func (s *supervisor) neverRan(exitCode, signal int, why string) {
	j := &s.rec.journal
	s.exited, s.alone = true, true
	s.endedAt = time.Now()
	j.StartedAtNanos, j.ExitCode, j.Signal = 0, exitCode, signal
	if why != "" {
		j.ErrorCode, j.Error = execjournal.ErrorStartFailed, execjournal.Sentence(why)
	}
}
