package shim

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is struct sigaction of the kernel on 64-bit machines.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	sigIgn     = 1
	lastSignal = 64
)

// heedSignals gives every signal that we ignore its default action. Ignoring is inherited, from an engine that was itself
// started by a shell in the background down to every command, which would then be deaf to ^C. Package signal can't do
// this for signals that the runtime found ignored, nor for those that it keeps away from.
func heedSignals() {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now, byDefault sigaction
		size := unsafe.Sizeof(now.mask)
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), size, 0, 0)
		if errno == 0 && now.handler == sigIgn {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, size, 0, 0)
		}
	}
}
