package main

import (
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// startRoom is what one start may take of the container's memory: a supervisor and the beginning of its command.
const startRoom = 4 << 20

// starting are the supervisors whose command does not run yet: init's ends of their startFd, which hang up when it does, or when
// they die.
type starting struct {
	fds     []int
	waiting []string // execs that wait for room, in order
}

// admit tells whether another supervisor may be started. While one is starting, the next one must find room in the
// container's memory: many at once would use it up with no command there that the kernel could kill.
func (s *starting) admit(id string) bool {
	if len(s.fds) == 0 || memoryFree() >= int64(len(s.fds)+1)*startRoom {
		return true
	}
	if !slices.Contains(s.waiting, id) {
		s.waiting = append(s.waiting, id)
	}
	return false
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
