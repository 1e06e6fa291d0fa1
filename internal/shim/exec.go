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
	"github.com/agbox/agbox/internal/host/passwd"
)

// Exit codes of a supervisor. Any other exit means that it was killed or crashed, and that its process tree may still run.
const (
	settled  = 0  // this exec needs no further action
	tryAgain = 75 // no journal was created, for a transient reason (EX_TEMPFAIL)
)

// Descriptors that a supervisor inherits from init.
const (
	stopFd = 3 // readable once the container stops
	linkFd = 4 // to init. From init: a byte when it has raised the supervisor's score, then execs, and streams of the daemon. To init: begun and freed
)

// errSettled ends a supervisor before it starts a command: there is nothing to run, and this is no error.
var errSettled = errors.New("nothing to do")

// runExec is the main function of a supervisor, which supervises one exec after another. It returns settled or tryAgain.
func runExec(at Places, o options) int {
	score := startingOOMScore()
	sig, err := becomeSupervisor()
	if err != nil {
		say("become a supervisor: %v", err)
		return tryAgain
	}
	if _, err := unix.GetsockoptInt(linkFd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		say("only init starts supervisors")
		return settled
	}
	raisedByInit()
	left, buf := new(leftover), make([]byte, 64<<10)
	defer func() { left.discard(at.Logs) }()
	for {
		id, lock, err := assigned()
		if errors.Is(err, errDismissed) {
			return tryAgain
		}
		var s *supervisor
		if err == nil {
			s, err = prepare(at, o, sig, id, lock, left)
		}
		if errors.Is(err, errSettled) {
			return settled
		}
		if err != nil {
			say("exec %s: %v", id, err)
			return tryAgain
		}
		s.launch(at, o)
		s.settle(score)
		s.loop(buf)
		if !s.release(o, score) {
			return settled
		}
	}
}

// stops reports whether the container stops.
func stops() bool {
	stop := []unix.PollFd{{Fd: stopFd, Events: unix.POLLIN}}
	n, err := unix.Poll(stop, 0)
	return err == nil && n == 1 && stop[0].Revents&unix.POLLIN != 0
}

// becomeSupervisor sets up the process.
func becomeSupervisor() (*signals, error) {
	unix.CloseOnExec(stopFd)
	unix.CloseOnExec(linkFd)
	sig, err := catch()
	if err != nil {
		return nil, err
	}
	// All descendants of the command stay descendants of the supervisor, however they fork.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	return sig, warmThreads(idleThreads)
}

// prepare does all steps up to the creation of the journal. After that, this supervisor must record the exec's end.
func prepare(at Places, o options, sig *signals, id string, lock int, left *leftover) (*supervisor, error) {
	ctl, err := execjournal.OpenDir(at.Ctl + "/" + execjournal.ExecDir)
	if err != nil {
		return nil, err
	}
	logs, err := execjournal.OpenDir(at.Logs)
	if err != nil {
		return nil, err
	}
	if !sameFile(lock, logs, execjournal.LockName(id)) {
		say("exec %s: the lock was not handed over", id)
		return nil, errSettled
	}
	s := &supervisor{ctl: ctl, lock: lock, job: job{sig: sig}}
	s.request, err = execjournal.ReadRequest(ctl, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errSettled // agboxd removed the request
	}
	s.rec = newRecorder(logs, id, s.request.Nonce)
	s.rec.left, s.rec.journal.Run = left, o.run
	if errors.Is(err, execjournal.ErrMalformed) {
		return nil, s.refuse(err)
	}
	if err != nil {
		return nil, err
	}
	if boot := s.request.BootID; boot != "" && !s.ofThisBoot(boot) {
		say("exec %s: its request is of an earlier boot of the host", id)
		return nil, errSettled // agboxd closes the exec
	}
	return s, s.claim(logs, id, o)
}

// ofThisBoot reports whether the exec was dispatched in the present boot of the host. Then the daemon's record protects it from a second start,
// and its journal need not be on disk first, unless this is another kernel than the host's: its boot and its disk are not those of the record.
func (s *supervisor) ofThisBoot(boot string) bool {
	if boot == s.rec.journal.BootID {
		s.rec.synced = false
		return true
	}
	host := execjournal.ReleasedIn(s.ctl)
	return host == "" || host == boot
}

// claim opens the logs and creates the journal. It shares the logs with the user here, so that a full disk delays the start instead of
// failing it. A user that cannot be identified fails the start later, in launch.
func (s *supervisor) claim(logs int, id string, o options) error {
	who, unknown := o.identify(cmp.Or(s.request.User, o.user))
	for _, name := range []string{execjournal.StdoutName(id), execjournal.StderrName(id)} {
		fd, err := openLog(logs, name)
		if errors.Is(err, execjournal.ErrMalformed) {
			return s.refuse(err)
		}
		if err != nil {
			return err
		}
		s.streams = append(s.streams, &stream{
			pipe: -1, log: fd, dir: logs, limit: s.request.LogLimitBytes, final: -1, holds: s.request.Live,
			mark: s.request.LogLimitAction == execjournal.LogLimitDrop,
		})
		if unknown != nil {
			continue
		}
		if err := shareLog(logs, fd, who); errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	if stops() {
		return errSettled // no command starts after the container has started to stop
	}
	err := s.rec.begin()
	if errors.Is(err, fs.ErrExist) {
		return errSettled // another supervisor, or agboxd, created the journal first
	}
	if err != nil {
		return fmt.Errorf("create the journal: %w", err)
	}
	for _, st := range s.streams { // output of this exec is not in the logs yet
		if err := unix.Ftruncate(st.log, 0); err != nil {
			say("exec %s: truncate a log: %v", id, err)
		}
	}
	return nil
}

// refuse records that the exec cannot be started, if its nonce is known.
func (s *supervisor) refuse(why error) error {
	say("exec %s: %v", s.rec.journal.ExecID, why)
	if s.rec.journal.Nonce == "" {
		return errSettled
	}
	return cmp.Or(s.rec.refuse(why.Error()), errSettled)
}

// launch starts the command, unless it was cancelled before, and sets the end if the start fails.
//
// launch reads the cancel file after the journal exists, and init signals the supervisor only if the journal exists. So launch or the
// signal finds a cancel, whenever it is written.
func (s *supervisor) launch(at Places, o options) {
	s.kill = killer{tree: tree{root: os.Getpid()}, grace: time.Duration(s.request.CancelGraceMillis) * time.Millisecond}
	s.oom = oomKills()
	if s.stopping = stops(); s.stopping {
		s.kill.why = byStop
	} else if cancelled(s.ctl, s.request) {
		s.kill.why = byCancel
	}
	if s.kill.why != notEnding {
		s.neverRan(128+int(unix.SIGTERM), int(unix.SIGTERM), "")
		return
	}
	who, err := o.become(cmp.Or(s.request.User, o.user))
	if err != nil {
		s.neverRan(exitCannotRun, 0, err.Error())
		return
	}
	s.caps = o.caps
	if why := s.spawn(at, who); why != nil {
		s.in.hangUp()
		s.neverRan(why.exitCode, 0, why.why)
	} else if s.request.TimeoutMillis > 0 {
		s.deadline = time.Now().Add(time.Duration(s.request.TimeoutMillis) * time.Millisecond)
	}
}

// neverRan sets the end of a command that was not started.
func (s *supervisor) neverRan(exitCode, signal int, why string) {
	j := &s.rec.journal
	s.exited, s.alone = true, true
	s.endedAt = time.Now()
	j.StartedAtNanos, j.ExitCode, j.Signal = 0, exitCode, signal
	if why != "" {
		j.ErrorCode, j.Error = execjournal.ErrorStartFailed, execjournal.Sentence(why)
	}
}

// spawn opens the command's three descriptors and starts the command.
func (s *supervisor) spawn(at Places, who passwd.Identity) *startError {
	env := environment(os.Environ(), who, s.request.Env)
	s.linked, s.live = true, s.request.Live
	stdin, why := s.input(at, who)
	if why != nil {
		return why
	}
	s.applyQuota()
	if s.in != nil {
		env = withShim(env)
	}
	if s.request.Terminal != nil {
		env = withTerm(env)
	}
	why = s.start(s.request.Command, s.request.Cwd, who, env, stdin)
	s.in.observe()
	return why
}

// input opens the command's standard input. If the request has an inbox, it also creates the outbox.
func (s *supervisor) input(at Places, who passwd.Identity) (int, *startError) {
	switch r := s.request; {
	case r.Terminal != nil:
		t, slave, err := openTerminal(who, cmp.Or(r.Terminal.Columns, 80), cmp.Or(r.Terminal.Rows, 24))
		if err != nil {
			return -1, cannotRun("%v", err)
		}
		s.typed = t
		return slave, nil
	case r.Stdin:
		t, end, err := openTyped(who)
		if err != nil {
			return -1, cannotRun("%v", err)
		}
		s.typed = t
		return end, nil
	case !r.Inbox:
		return openNull()
	}
	words, err := makeOutbox(at.Out, s.request.ExecID, s.request.OutboxLimitBytes)
	if err != nil {
		return -1, cannotRun("%v", err)
	}
	s.words = words
	s.in = &feeder{ctl: s.ctl, id: s.request.ExecID, pipe: -1, inbox: -1}
	fd, err := s.in.open(who)
	if err != nil {
		return -1, cannotRun("%v", err)
	}
	return fd, nil
}

func openNull() (int, *startError) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, cannotRun("open /dev/null: %v", err)
	}
	return null, nil
}
