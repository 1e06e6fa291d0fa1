package shim

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction on 64-bit machines.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	sigIgn     = 1
	lastSignal = 64
)

// handleSignals resets every ignored signal to its default action. Ignored signals are inherited from the engine, which a shell may have
// started in the background, by every command, which would then not react to ^C. Package signal cannot reset signals that were ignored when
// the runtime started, nor those that the runtime does not handle.
func handleSignals() {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now, byDefault sigaction
		size := unsafe.Sizeof(now.mask)
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), size, 0, 0)
		if errno == 0 && now.handler == sigIgn {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, size, 0, 0)
		}
	}
}
