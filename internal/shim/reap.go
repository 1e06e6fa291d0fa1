package shim

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// reap takes every dead child: supervisors, and what nobody else waits for.
func (p *initProcess) reap() {
	for pid, ws := range deadChildren {
		if pid == p.mainPid {
			p.mainEnded(ws)
			continue
		}
		if p.reserve.ended(pid) {
			continue
		}
		for _, c := range p.children {
			if c.pid == pid {
				p.ended(c, ws)
				break
			}
		}
	}
}

// deadChildren yields the children that are dead by now, and takes them.
func deadChildren(yield func(pid int, ws unix.WaitStatus) bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 || !yield(pid, ws) {
			return
		}
	}
}

// ended gives up the lock of a supervisor that ended in order. Another one may have left its tree behind.
func (p *initProcess) ended(c *child, ws unix.WaitStatus) {
	delete(p.children, c.id)
	switch {
	case ws.Exited() && ws.ExitStatus() == settled:
		unix.Close(c.lock)
		p.settled[c.id] = c.request
		p.start(c.id) // in case it was rewritten meanwhile
	case ws.Exited() && ws.ExitStatus() == tryAgain:
		unix.Close(c.lock) // the next rescan
	default:
		say("exec %s: its supervisor died (exit %d, signal %d)", c.id, ws.ExitStatus(), ws.Signal())
		p.dead = append(p.dead, c)
		p.clean = 0
	}
}

func (p *initProcess) isDead(id string) bool {
	for _, c := range p.dead {
		if c.id == id {
			return true
		}
	}
	return false
}

// purge kills what dead supervisors left: everything below us that is not below a living supervisor or the reserve. Processes that an
// operator started and left are among it; they can't be told apart. Two rounds in a row must find nothing, since a process
// can pass its life on between two reads of the list.
func (p *initProcess) purge() {
	if len(p.dead) == 0 {
		return
	}
	living := map[int]bool{p.mainPid: true, p.reserve.pid: true}
	for _, c := range p.children {
		living[c.pid] = true
	}
	if (tree{root: os.Getpid(), except: living}).kill() > 0 {
		p.clean = 0
		return
	}
	if p.clean++; p.clean < 2 {
		return
	}
	for _, c := range p.dead {
		p.lose(c)
	}
	p.dead = nil
}

// purgeAt is when to look again.
func (p *initProcess) purgeAt() time.Time {
	if p.clean > 0 {
		return time.Now()
	}
	return time.Now().Add(killEvery)
}

// lose gives up the lock of a dead supervisor whose tree is gone, and rings the bell for the daemon, which sees no change
// of a lock, and may not see the lock at all. Without a journal nothing ran: there is no bell, and it may be tried again.
func (p *initProcess) lose(c *child) {
	begun, err := execjournal.Exists(p.logs, execjournal.JournalName(c.id))
	if err == nil && !begun {
		p.failures[c.id]++
		if p.failures[c.id] >= maxFailures {
			p.refuse(c.id, c.request, "its supervisor died each time before it could begin: the sandbox has no room for its threads or memory")
		}
		p.soon = time.Now().Add(busyPause)
		unix.Close(c.lock)
		return
	}
	unix.Close(c.lock)
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	if fd, err := unix.Openat(p.logs, execjournal.LostName(c.id), flags, execjournal.PrivateMode); err == nil {
		unix.Close(fd)
	}
}
