package shim

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The reserve is memory that the kernel can free, by killing a process that holds it, when PID 1 or a supervisor allocates and no command
// is left to kill.
//
// The kernel stops counting a process as a candidate before it has freed the process's memory, which takes up to 100 ms on a busy machine.
// Any allocation by a shim process in that time, such as a page, a file descriptor or a fork, makes the kernel choose again. The reserve's
// members are idle processes that it chooses before other shim processes:
//
//	score 750         commands
//	      700         members: one thread each, so that the kernel waits for the exit of a killed member
//	      500         the keeper, which forks the members; supervisors that are starting; the first instant of a command
//	      0           supervisors, PID 1
//
// The keeper replaces killed members, and PID 1 a killed keeper, once enough memory is free.
const (
	reserveVerb  = "reserve"
	reserveScore = 700

	// reserveMemory is the memory of a member, in bytes. It is about what a supervisor allocates to start, the allocation that most often
	// makes the kernel kill a process.
	reserveMemory = 1 << 20
	// reserveProcess bounds the total memory of a member, or of the keeper, in bytes: 1.2 MiB was measured.
	reserveProcess = reserveMemory + reserveMemory/4
	// reserveSize is the number of members. It was enough after each of 203 kills on a busy machine: the kernel killed one member after 24
	// of them, and two after one.
	reserveSize = 3
	// reserveLimit is the smallest memory limit, in bytes, of a container with a reserve. Below it commands and the page cache need the
	// memory more: at 32 MiB, processes that filled the rest kept a busy machine reclaiming for half a minute.
	reserveLimit = 64 << 20
	// reserveRest is the pause before a killed member is replaced. By then the kernel has freed its memory.
	reserveRest = 500 * time.Millisecond
)

// reserve is PID 1's record of the keeper. A container without a memory limit, or with a small one, has no keeper.
type reserve struct {
	pid int // process ID of the keeper; 0: none
}

// keep starts the keeper if it does not run and enough memory is free.
func (r *reserve) keep(score oomScore) {
	if r.pid != 0 {
		return
	}
	if memoryLimit() < reserveLimit || memoryUnused() < startRoom+(reserveSize+1)*reserveProcess {
		return
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"agbox-shim", reserveVerb},
		&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 2, 2}})
	if err != nil {
		say("start the memory reserve: %v", err)
		return
	}
	score.set(pid, startingScore)
	r.pid = pid
}

// ended reports whether pid was the keeper. The kernel kills the members with it; the next rescan starts a new keeper.
func (r *reserve) ended(pid int) bool {
	if pid != r.pid {
		return false
	}
	*r = reserve{}
	return true
}

// release kills the keeper. In a container it would die with PID 1; outside, as in tests, nothing else kills it.
func (r *reserve) release() {
	if r.pid != 0 {
		_ = unix.Kill(r.pid, unix.SIGKILL)
	}
}

// runReserve is the main function of the keeper. It runs until a signal kills it.
func runReserve() int {
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil || os.Getppid() != parent {
		return 1
	}
	score := startingOOMScore()
	runtime.LockOSThread() // Pdeathsig of the members fires when the thread that forked them exits
	for alive := 0; ; time.Sleep(reserveRest) {
		for alive < reserveSize && memoryUnused() >= startRoom+reserveProcess {
			pid, err := forkMember()
			if err != nil {
				say("fork a member of the memory reserve: %v", err)
				break
			}
			score.set(pid, reserveScore)
			alive++
		}
		wait := 0
		if alive < reserveSize {
			wait = unix.WNOHANG
		}
		if pid, err := unix.Wait4(-1, nil, wait, nil); err == nil && pid > 0 {
			alive--
		}
	}
}

// forkMember forks a process that holds reserveMemory and sleeps until it is killed or the keeper dies. The child contains only a copy of
// this thread, without the other threads of the Go runtime, so it makes only raw system calls.
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
