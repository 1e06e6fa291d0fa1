package shim

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The reserve is memory that the kernel frees by itself when PID 1 or a supervisor needs some and no command is left to kill.
//
// The kernel stops counting a process as a candidate before it has freed the process's memory, which on a busy machine takes up to
// 100 ms. Whatever a process of ours allocates meanwhile, a page, a file descriptor, a fork, makes the kernel choose again. The reserve's
// members are idle processes that it chooses before ours:
//
//	score 500         commands
//	      450         members: one thread each, so that the kernel waits for the one that it kills
//	      250         the keeper, which forks them; supervisors that start
//	      0           supervisors, PID 1
//
// The keeper replaces members, and PID 1 the keeper, once there is room.
const (
	reserveVerb  = "reserve"
	reserveScore = 450

	// reserveMemory is what a member holds, in bytes: about what a supervisor takes to start, the use of memory that meets the kernel's
	// choice most often.
	reserveMemory = 1 << 20
	// reserveProcess bounds what a member, or the keeper, takes of the container's memory, in bytes: 1.2 MiB was measured.
	reserveProcess = reserveMemory + reserveMemory/4
	// maxReserve members were enough after each of 203 kills on a busy machine: the kernel killed one member after 24 of them, and two
	// after one.
	maxReserve = 3
	// memoryPerMember is the memory limit, in bytes, for which there is one member: the reserve takes at most a sixth of the limit.
	memoryPerMember = 16 << 20
	// reserveRest is the pause before a replacement: the kernel has freed by then what it killed.
	reserveRest = 500 * time.Millisecond
)

// reserveMembers returns the number of members for a memory limit in bytes; 0 is no limit.
func reserveMembers(limit int64) int { return int(min(limit/memoryPerMember, maxReserve)) }

// reserve is PID 1's view of its keeper. A container without a memory limit has none.
type reserve struct {
	pid int // of the keeper; 0: there is none
}

// keep starts the keeper, if there is none and it finds free memory.
func (r *reserve) keep(score oomScore) {
	if r.pid != 0 {
		return
	}
	members := reserveMembers(memoryLimit())
	if members == 0 || memoryUnused() < startRoom+int64(members+1)*reserveProcess {
		return
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"agbox-shim", reserveVerb, strconv.Itoa(members)},
		&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 2, 2}})
	if err != nil {
		say("start the memory reserve: %v", err)
		return
	}
	score.set(pid, startingScore)
	r.pid = pid
}

// ended reports whether pid was the keeper. Its members die with it; the next rescan starts another one.
func (r *reserve) ended(pid int) bool {
	if pid != r.pid {
		return false
	}
	*r = reserve{}
	return true
}

// release ends the keeper; outside of a container nothing else does.
func (r *reserve) release() {
	if r.pid != 0 {
		_ = unix.Kill(r.pid, unix.SIGKILL)
	}
}

// runReserve is the life of the keeper, which only a signal ends.
func runReserve(members int) int {
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil || os.Getppid() != parent {
		return 1
	}
	score := startingOOMScore()
	runtime.LockOSThread() // members die with the thread that forked them
	for alive := 0; ; time.Sleep(reserveRest) {
		for alive < members && memoryUnused() >= startRoom+reserveProcess {
			pid, err := forkMember()
			if err != nil {
				say("fork a member of the memory reserve: %v", err)
				break
			}
			score.set(pid, reserveScore)
			alive++
		}
		wait := 0
		if alive < members {
			wait = unix.WNOHANG
		}
		if pid, err := unix.Wait4(-1, nil, wait, nil); err == nil && pid > 0 {
			alive--
		}
	}
}

// forkMember forks a process that holds reserveMemory and sleeps until it is killed or the keeper dies. The child is a copy of this thread
// alone, without the other threads of the Go runtime, so it makes nothing but raw system calls.
//
//go:norace
func forkMember() (int, error) {
	keeper := uintptr(os.Getpid())
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("clone", errno)
	}
	if pid != 0 {
		return int(pid), nil
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	parent, _, _ := syscall.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0)
	_, _, errno = syscall.RawSyscall6(unix.SYS_MMAP, 0, reserveMemory, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE, ^uintptr(0), 0)
	for parent == keeper && errno == 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0)
	}
}
