package shim

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// sayings bounds what one process writes to the container's log.
var sayings = 200

// say writes one line to the container's log, or drops it: the pipe behind it is the engine's, and an engine that hangs
// must not hang PID 1. Main goroutine only.
func say(format string, a ...any) {
	if sayings == 0 {
		return
	}
	sayings--
	// POLLOUT on a pipe promises room for PIPE_BUF bytes, and a line is shorter.
	fds := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err != nil || n != 1 || fds[0].Revents&unix.POLLOUT == 0 {
		return
	}
	_, _ = unix.Write(2, []byte("agbox-shim: "+execjournal.Sentence(fmt.Sprintf(format, a...))+"\n"))
}
