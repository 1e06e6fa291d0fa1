package try

import "syscall"

// forkEnded starts a process that exits at once. It returns its ID; the exit code has to be asked for.
//
// The child is a copy of this process with this thread only: it may call nothing of Go's runtime, and grow no stack. It makes one system call.
//
//go:norace
//go:nosplit
func forkEnded() (int, syscall.Errno) {
	pid, _, err := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if err == 0 && pid == 0 {
		for {
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return int(pid), err
}
