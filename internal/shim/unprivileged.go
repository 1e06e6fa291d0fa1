package shim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// caps are numbers of capabilities.
type caps []uintptr

// String implements flag.Value.
func (c *caps) String() string { return fmt.Sprint(*c) }

// Set implements flag.Value: it adds one.
func (c *caps) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n > maxCapability {
		return fmt.Errorf("%q is not the number of a capability", text)
	}
	*c = append(*c, uintptr(n))
	return nil
}

// startUnprivileged removes all capabilities but keep from every command that this process starts from now on, also from commands of root, and
// every way to gain another one; with gain, programs may still grant those of keep and change the user. The process keeps its own permitted and
// effective sets.
//
// A command inherits three sets, and startUnprivileged empties them all, the first but for keep: the bounding set, which limits what root gains at each exec; the
// inheritable set, which some engines fill; and the ambient set. The sets belong to threads and any thread may fork, so they are emptied on
// all threads.
func startUnprivileged(keep caps, gain bool) error {
	calls := []struct {
		what    string
		trap    uintptr
		a, b, c uintptr
	}{
		{"forbid new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0},
		{"empty the ambient set", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0},
	}
	if gain {
		calls = calls[1:]
	}
	for _, call := range calls {
		if _, _, errno := syscall.AllThreadsSyscall6(call.trap, call.a, call.b, call.c, 0, 0, 0); errno != 0 {
			return fmt.Errorf("%s: %w", call.what, errno)
		}
	}
	if err := emptyInheritable(); err != nil {
		return fmt.Errorf("empty the inheritable set: %w", err)
	}
	return emptyBounding(keep)
}

func emptyInheritable() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&hdr, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&sets[0])), 0)
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&sets)
	if errno != 0 {
		return errno
	}
	return nil
}

// maxCapability is the highest possible capability number: the sets are 64 bits wide.
const maxCapability = 63

func emptyBounding(keep caps) error {
	for c := range uintptr(maxCapability + 1) {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no capability c or above
		}
		if err != nil {
			return fmt.Errorf("read the bounding set: %w", err)
		}
		if has == 0 || slices.Contains(keep, c) {
			continue
		}
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, errno)
		}
	}
	return nil
}
