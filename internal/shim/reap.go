package shim

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// reap reaps every dead child: supervisors, and orphans that no other process waits for.
func (p *initProcess) reap() {
	deadChildren(func(pid int, ws unix.WaitStatus) {
		if pid == p.mainPid {
			p.mainEnded(ws)
			return
		}
		if pid == p.entry.pid {
			p.entryEnded(ws)
			return
		}
		if p.reserve.ended(pid) || p.ready.ended(pid) || p.channel.ended(pid) {
			return
		}
		for _, c := range p.children {
			if c.pid == pid {
				p.ended(c, ws)
				return
			}
		}
	})
}

// ended handles the exit of a supervisor. It releases the lock if the exit code says that the supervisor has left no processes; otherwise
// it adds the supervisor to dead, and purge kills its process tree.
func (p *initProcess) ended(c *child, ws unix.WaitStatus) {
	delete(p.children, c.id)
	p.closeLink(c.link)
	switch {
	case ws.Exited() && ws.ExitStatus() == settled:
		unix.Close(c.lock)
		p.settled[c.id] = c.request
		p.start(c.id) // if the request file was replaced meanwhile
	case ws.Exited() && ws.ExitStatus() == tryAgain:
		unix.Close(c.lock) // the next rescan retries
	default:
		say("exec %s: its supervisor died (exit %d, signal %d)", c.id, ws.ExitStatus(), ws.Signal())
		p.dead = append(p.dead, c)
		p.clean = 0
	}
}

// closeLink closes the link to a supervisor that has ended.
func (p *initProcess) closeLink(link int) {
	p.starting.forget(link)
	unix.Close(link)
}

func (p *initProcess) isDead(id string) bool {
	return slices.ContainsFunc(p.dead, func(c *child) bool { return c.id == id })
}

// purge kills the process trees of dead supervisors: every descendant of PID 1 that is not below a living supervisor or the reserve. This
// includes processes that an operator started with docker exec and left behind; PID 1 cannot distinguish them. It releases the locks only
// after two rounds in a row found no process, because a process can fork and exit between two reads of the process list.
func (p *initProcess) purge() {
	if len(p.dead) == 0 {
		return
	}
	living := map[int]bool{p.mainPid: true, p.reserve.pid: true, p.entry.pid: true}
	for _, w := range p.ready.all {
		living[w.pid] = true
	}
	for _, c := range p.children {
		living[c.pid] = true
	}
	for _, w := range p.channel.workers {
		living[w.pid] = true
	}
	for _, w := range p.channel.leaving {
		living[w.pid] = true
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

// purgeAt returns the time of the next purge.
func (p *initProcess) purgeAt() time.Time {
	if p.clean > 0 {
		return time.Now()
	}
	return time.Now().Add(killEvery)
}

// lose releases the lock of a dead supervisor whose process tree is gone. If a journal exists, it also creates the file LostName to notify
// agboxd, which gets no event when a lock is released and may not see locks at all. Without a journal no command has run: lose creates no
// file, and the exec may be retried, up to maxFailures times.
func (p *initProcess) lose(c *child) {
	begun, err := execjournal.Exists(p.logs, execjournal.JournalName(c.id))
	if err == nil && !begun {
		p.failures[c.id]++
		if p.failures[c.id] >= maxFailures {
			p.refuse(c.id, c.request, "its supervisor died each time before it could begin: the sandbox has no room for its threads or memory")
		}
		p.retryIn(busyPause)
		unix.Close(c.lock)
		return
	}
	unix.Close(c.lock)
	_ = execjournal.Touch(p.logs, execjournal.LostName(c.id), 0)
}
