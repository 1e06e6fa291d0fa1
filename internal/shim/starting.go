package shim

import (
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startRoom is what one start may take of the container's memory, in bytes: a supervisor and the beginning of its command.
	startRoom = 4 << 20
	// startPatience is how long an exec waits for that while no other one starts, and startPause the time between two tries.
	startPatience = time.Minute
	startPause    = 100 * time.Millisecond
)

// starting are the supervisors whose command does not run yet: init's ends of their startFd, which hang up when it does, or when
// they die.
type starting struct {
	fds     []int
	waiting []string             // execs that wait for room, in order
	since   map[string]time.Time // by exec ID: when it was first refused after the last admission
}

// admit reports whether another supervisor may be started beside those that live, or that it waited too long for that. While one is starting,
// the next one must find free memory, and beside those that run, memory that the kernel can free: their commands may hold so little
// that killing all of them leaves nothing to kill but PID 1.
func (s *starting) admit(id string, live int, now time.Time) (ok, late bool) {
	need := int64(len(s.fds)+1) * startRoom
	if live == 0 || memoryFree() >= need || len(s.fds) == 0 && memoryAvailable(live) >= need {
		clear(s.since) // an admission is progress: the wait of the others starts over
		return true, false
	}
	if s.since[id].IsZero() {
		s.since[id] = now
	}
	if now.Sub(s.since[id]) > startPatience {
		delete(s.since, id)
		return false, true
	}
	if !slices.Contains(s.waiting, id) {
		s.waiting = append(s.waiting, id)
	}
	return false, false
}

// spawn starts a supervisor, which inherits stop and, if there is one, lock.
func (s *starting) spawn(argv []string, score oomScore, stop int, lock ...uintptr) (pid int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, os.NewSyscallError("socketpair", err)
	}
	pid, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: append([]uintptr{0, 2, 2, stopFd: uintptr(stop), startFd: uintptr(pair[1])}, lock...),
	})
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
		return 0, err
	}
	score.set(pid, startingScore)
	_, _ = unix.Write(pair[0], []byte{1}) // fails only when it has died
	s.fds = append(s.fds, pair[0])
	return pid, nil
}

// watch adds the descriptors for poll(2).
func (s *starting) watch(fds []unix.PollFd) []unix.PollFd {
	for _, fd := range s.fds {
		fds = append(fds, unix.PollFd{Fd: int32(fd)}) // poll(2) always reports a hang-up
	}
	return fds
}

// settled forgets those that hung up, and returns the execs that may try again.
func (s *starting) settled(polled []unix.PollFd) (again []string) {
	for _, p := range polled {
		if p.Revents != 0 {
			unix.Close(int(p.Fd))
			s.fds = slices.DeleteFunc(s.fds, func(fd int) bool { return fd == int(p.Fd) })
			again, s.waiting = append(again, s.waiting...), nil
		}
	}
	return again
}
