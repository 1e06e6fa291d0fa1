package shim

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// readyFor is how long a supervisor whose exec has ended waits for another one: commands often come in a row, and an idle sandbox keeps none.
	readyFor = 30 * time.Second
	// readyMost is how many of them wait at most.
	readyMost = 8
	// readyRoom is the unused memory, in bytes, without which none waits: that of four starts.
	readyRoom = 4 * startRoom
	// readyPids is how many more processes and threads the container must be allowed to have, or none waits. A supervisor has up to ten.
	readyPids = 64
	// idleMillis is how long a supervisor without an exec keeps the garbage of the last one, in milliseconds.
	idleMillis = 200
)

// The bytes that a supervisor sends over its link.
const (
	begun = 1 // its command runs, or will not
	freed = 2 // it has nothing of its exec left, not even the lock, and waits for another one
)

// ready holds the supervisors that wait for an exec after an earlier one, which saves an exec the start of a process. They have the score of a
// starting supervisor, so the kernel kills them before any that has a command.
type ready struct{ all []waiting }

type waiting struct {
	worker
	since time.Time
}

// assign gives an exec and its lock to the supervisor that began to wait last or, if none waits, to one that spawn starts. The caller owns
// the link, and keeps its own descriptor of the lock.
func (r *ready) assign(id string, lock int, spawn func() (worker, error)) (worker, error) {
	for n := len(r.all) - 1; n >= 0; n-- {
		w := r.all[n].worker
		r.all = r.all[:n]
		if handOver(w.link, id, lock) == nil {
			return w, nil
		}
		unix.Close(w.link) // it has died
	}
	w, err := spawn()
	if err == nil && handOver(w.link, id, lock) != nil {
		_ = unix.Shutdown(w.link, unix.SHUT_RDWR) // it exits with tryAgain
	}
	return w, err
}

// keep lets a supervisor wait, or dismisses it if enough wait.
func (r *ready) keep(w worker, now time.Time) {
	if len(r.all) == readyMost {
		unix.Close(w.link)
		return
	}
	r.all = append(r.all, waiting{w, now})
}

// prune dismisses those that have waited for readyFor, and all if there is no room for them.
func (r *ready) prune(now time.Time) {
	if len(r.all) == 0 {
		return
	}
	room := memoryUnused() >= readyRoom && pidsFree() >= readyPids
	r.all = slices.DeleteFunc(r.all, func(w waiting) bool {
		dismissed := !room || now.Sub(w.since) >= readyFor
		if dismissed {
			unix.Close(w.link)
		}
		return dismissed
	})
}

// ended reports whether pid was a supervisor that waits.
func (r *ready) ended(pid int) bool {
	i := slices.IndexFunc(r.all, func(w waiting) bool { return w.pid == pid })
	if i < 0 {
		return false
	}
	unix.Close(r.all[i].link)
	r.all = slices.Delete(r.all, i, i+1)
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

// assigned waits for handOver. It drops streams of an exec that ended before they arrived.
func assigned() (id string, lock int, err error) {
	text, oob := make([]byte, 256), make([]byte, unix.CmsgSpace(4))
	link := []unix.PollFd{{Fd: linkFd, Events: unix.POLLIN}}
	if n, err := unix.Poll(link, idleMillis); n == 0 && err == nil {
		debug.FreeOSMemory() // in the pause, not between two execs in a row
	}
	for {
		_, _ = unix.Poll(link, -1)
		n, oobn, _, _, err := unix.Recvmsg(linkFd, text, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", -1, fmt.Errorf("wait for an exec: %w", err)
		case n == 0:
			return "", -1, errDismissed
		}
		id, passed := string(text[:n]), rights(oob[:oobn])
		if id == streamMark {
			closeAll(passed)
			continue
		}
		if len(passed) == 1 && execjournal.ValidExecID(id) {
			showExec(id)
			return id, passed[0], nil
		}
		return "", -1, fmt.Errorf("wait for an exec: init sent %q", id)
	}
}

// release frees what this process has of its exec, whose end is recorded, and reports whether it can supervise another one: no process of the
// command is left, and this one has all its privileges. It raises the score first, so it is never more precious than one that starts.
func (s *supervisor) release(o options, score oomScore) bool {
	if !s.alone || s.stopping || s.unlinked || o.hardened || s.in != nil || s.words != nil || s.typed != nil {
		return false
	}
	for _, a := range s.att.all {
		unix.Close(a.fd)
	}
	for _, st := range s.streams {
		unix.Close(st.log)
	}
	closeAll([]int{s.ctl, s.rec.dir, s.lock})
	score.set(os.Getpid(), startingScore)
	showExec(unassigned)
	_, err := unix.Write(linkFd, []byte{freed})
	return err == nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
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
