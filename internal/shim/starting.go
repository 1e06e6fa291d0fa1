package shim

import (
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startRoom is the memory that one start may take, in bytes: a supervisor and the start of its command.
	startRoom = 4 << 20
	// startPatience is how long an exec waits for memory while no other exec is admitted. startPause is the time between two attempts.
	startPatience = time.Minute
	startPause    = 100 * time.Millisecond
)

// starting holds the supervisors whose command does not run yet, as their links: init's ends of their linkFd. A supervisor writes one byte
// once the command runs; the link hangs up if it dies before.
type starting struct {
	links    []int
	since    map[string]time.Time // time of the first refusal of each exec that waits for memory, by its ID
	admitted time.Time            // last admission
}

// admit reports whether another supervisor may be started beside the live ones, or that the exec has waited too long (late). While another
// supervisor is starting, the next one needs free memory. Otherwise memory that the kernel can free suffices: commands may hold so little
// that the kernel, after it has killed them all, could only kill PID 1.
func (s *starting) admit(id string, live int, now time.Time) (ok, late bool) {
	need := int64(len(s.links)+1) * startRoom
	if live == 0 || memoryFree() >= need || len(s.links) == 0 && memoryAvailable(live) >= need {
		delete(s.since, id)
		s.admitted = now // this is progress: the others wait startPatience again
		return true, false
	}
	return false, s.wait(id, now)
}

// wait notes that an exec waits for memory, or reports that it has waited too long (late).
func (s *starting) wait(id string, now time.Time) (late bool) {
	if s.since[id].IsZero() {
		s.since[id] = now
	}
	late = now.Sub(s.since[id]) > startPatience && now.Sub(s.admitted) > startPatience
	if late {
		delete(s.since, id)
	}
	return late
}

// waiting returns the IDs of the execs that wait for memory, in the order in which they began to wait.
func (s *starting) waiting() []string {
	return slices.SortedFunc(maps.Keys(s.since), func(a, b string) int { return s.since[a].Compare(s.since[b]) })
}

// spawn starts the supervisor of a main process, which inherits stop. The caller owns its link.
func (s *starting) spawn(argv []string, score oomScore, stop int) (pid, link int, err error) {
	pid, link, err = spawnSupervisor(argv, score, stop)
	if err != nil {
		return 0, -1, err
	}
	s.links = append(s.links, link)
	return pid, link, nil
}

// spawnSupervisor starts a supervisor and notifies it once its score is raised. The caller owns its link.
func spawnSupervisor(argv []string, score oomScore, stop int) (pid, link int, err error) {
	pid, link, err = spawnLinked(argv, func(end uintptr) []uintptr { return []uintptr{0, 2, 2, stopFd: uintptr(stop), linkFd: end} })
	if err != nil {
		return 0, -1, err
	}
	score.set(pid, startingScore)
	_, _ = unix.Write(link, []byte{1}) // fails only if the supervisor has died
	return pid, link, nil
}

// spawnLinked starts a process of this program with one end of a socket pair, and returns the other end.
func spawnLinked(argv []string, files func(end uintptr) []uintptr) (pid, link int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, -1, os.NewSyscallError("socketpair", err)
	}
	pid, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{Env: os.Environ(), Files: files(uintptr(pair[1]))})
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
		return 0, -1, err
	}
	return pid, pair[0], nil
}

// watch appends the descriptors for poll(2) to fds.
func (s *starting) watch(fds []unix.PollFd) []unix.PollFd {
	for _, link := range s.links {
		fds = append(fds, unix.PollFd{Fd: int32(link), Events: unix.POLLIN}) // poll(2) always reports a hang-up
	}
	return fds
}

// settle removes the supervisors that have started or died, and reports whether there were any.
func (s *starting) settle(polled []unix.PollFd) (settled bool) {
	for _, p := range polled {
		if p.Revents == 0 {
			continue
		}
		var b [1]byte
		_, _ = unix.Read(int(p.Fd), b[:])
		s.forget(int(p.Fd))
		settled = true
	}
	return settled
}

// forget removes a link that its owner closes.
func (s *starting) forget(link int) {
	s.links = slices.DeleteFunc(s.links, func(l int) bool { return l == link })
}
