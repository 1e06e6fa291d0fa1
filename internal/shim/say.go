package shim

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// sayings is the number of lines that this process may still write to the container's log.
var sayings = 200

// say writes one line to the container's log, or drops it: the engine reads the pipe, and an engine that hangs must not block PID 1. Only
// the main goroutine may call it.
func say(format string, a ...any) {
	if sayings == 0 {
		return
	}
	sayings--
	// POLLOUT on a pipe guarantees space for PIPE_BUF bytes, and a line is shorter.
	fds := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err != nil || n != 1 || fds[0].Revents&unix.POLLOUT == 0 {
		return
	}
	_, _ = unix.Write(2, []byte("agbox-shim: "+execjournal.Sentence(fmt.Sprintf(format, a...))+"\n"))
}
