package shim

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// spawn opens the command's three descriptors and starts the command.
func (s *supervisor) spawn(at Places, who passwd.Identity) *startError {
	env := environment(os.Environ(), who, s.request.Env)
	stdin, why := s.input(at, who)
	if why != nil {
		return why
	}
	for _, log := range s.logs {
		s.streams = append(s.streams, &stream{
			pipe: -1, log: log, dir: s.logDir, limit: s.request.LogLimitBytes,
			mark: s.request.LogLimitAction == execjournal.LogLimitDrop,
		})
	}
	s.applyQuota()
	if s.in != nil {
		env = withShim(env)
	}
	why = s.start(s.request.Command, s.request.Cwd, who, env, stdin)
	s.in.observe()
	return why
}

// input opens the command's standard input. If the request has an inbox, it also creates the outbox.
func (s *supervisor) input(at Places, who passwd.Identity) (int, *startError) {
	if !s.request.Inbox {
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
