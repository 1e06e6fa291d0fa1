package shim

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// readyFor is how long a supervisor waits for an exec after the last one: commands often come in a row, and an idle sandbox keeps none.
	readyFor = 30 * time.Second
	// readyRoom is the unused memory, in bytes, without which none is kept: that of four starts.
	readyRoom = 4 * startRoom
	// readyPids is how many more processes and threads the container must be allowed to have, or none is kept. A supervisor has up to ten.
	readyPids = 64
)

// ready is the supervisor that waits for an exec, which saves that exec the start of a process. It has the score of a starting supervisor, so the
// kernel kills it before any that has a command.
type ready struct {
	worker           // pid 0: none waits
	last   time.Time // when an exec last needed a supervisor
}

// assign gives an exec and its lock to the supervisor that waits or, if there is none or it has died, to one that spawn starts. The caller owns
// the link, and keeps its own descriptor of the lock.
func (r *ready) assign(id string, lock int, spawn func() (worker, error)) (worker, error) {
	r.last = time.Now()
	if w := r.worker; w.pid != 0 && handOver(w.link, id, lock) == nil {
		r.worker = worker{}
		return w, nil
	}
	w, err := spawn()
	if err == nil && handOver(w.link, id, lock) != nil {
		_ = unix.Shutdown(w.link, unix.SHUT_RDWR) // it exits with tryAgain
	}
	return w, err
}

// keep starts a supervisor if an exec needed one lately, none waits, and there is room, and dismisses it when none was needed for readyFor.
func (r *ready) keep(spawn func() (worker, error)) {
	lately := !r.last.IsZero() && time.Since(r.last) < readyFor
	switch {
	case !lately && r.pid != 0:
		unix.Close(r.link)
		r.worker = worker{}
	case lately && r.pid == 0 && memoryUnused() >= readyRoom && pidsFree() >= readyPids:
		if w, err := spawn(); err == nil { // an exec tries again, and reports why
			r.worker = w
		}
	}
}

// ended reports whether pid was the supervisor that waits.
func (r *ready) ended(pid int) bool {
	if pid != r.pid {
		return false
	}
	unix.Close(r.link)
	r.worker = worker{}
	return true
}

// handOver sends an exec's ID and a descriptor of its lock over a link. The lock is held as long as a process has a descriptor of it.
func handOver(link int, id string, lock int) error {
	return unix.Sendmsg(link, []byte(id), unix.UnixRights(lock), nil, 0)
}

// unassigned is the argument of a supervisor without an exec, as long as the longest exec ID.
var unassigned = strings.Repeat(".", execjournal.MaxExecID)

// showExec overwrites the last argument of this process by the ID of its exec, for those who look at the list of processes.
func showExec(id string) {
	last := os.Args[len(os.Args)-1] // the kernel's memory of the arguments
	room := unsafe.Slice(unsafe.StringData(last), len(last))
	clear(room[copy(room, id):])
}

// errDismissed ends a supervisor that gets no exec: init has dismissed it, or died.
var errDismissed = errors.New("no exec was assigned")

// assigned waits for handOver.
func assigned() (id string, lock int, err error) {
	if _, err := unix.GetsockoptInt(linkFd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		say("only init starts supervisors")
		return "", -1, errSettled
	}
	raisedByInit()
	text, oob := make([]byte, 256), make([]byte, unix.CmsgSpace(4))
	for {
		_, _ = unix.Poll([]unix.PollFd{{Fd: linkFd, Events: unix.POLLIN}}, -1)
		n, oobn, _, _, err := unix.Recvmsg(linkFd, text, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", -1, fmt.Errorf("wait for an exec: %w", err)
		case n == 0:
			return "", -1, errDismissed
		}
		id = string(text[:n])
		if passed := rights(oob[:oobn]); len(passed) == 1 && execjournal.ValidExecID(id) {
			showExec(id)
			return id, passed[0], nil
		}
		return "", -1, fmt.Errorf("wait for an exec: init sent %q", id)
	}
}

// pidsFree returns how many more processes and threads the container may have; unlimited if the kernel reports no limit.
func pidsFree() int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(cgroupFile("pids", "pids.max", "pids.max")), 10, 64)
	used, err2 := strconv.ParseInt(strings.TrimSpace(cgroupFile("pids", "pids.current", "pids.current")), 10, 64)
	if err != nil || err2 != nil {
		return unlimited
	}
	return limit - used
}
