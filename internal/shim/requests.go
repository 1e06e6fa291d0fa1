package shim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// busyTries and busyPause bound the quick retries for a held lock. A lock without a journal is held only for an instant, unless by a
	// process that should not hold it; after busyTries attempts only the rescans retry.
	busyTries = 50
	busyPause = 20 * time.Millisecond
	// maxFailures is the number of supervisors that may die before they create the journal; after that the exec is recorded as failed to
	// start.
	maxFailures = 3
)

// fileID distinguishes two files of the same name.
type fileID struct {
	inode uint64
	mtime unix.Timespec
}

// consider handles one file of the inbox.
func (p *initProcess) consider(name string) {
	if name == execjournal.ReleaseName {
		p.release()
		return
	}
	if !p.released && !p.proves(name) {
		return // release schedules a rescan of all files
	}
	if name == channel.SocketName {
		p.channel.dial()
		return
	}
	if name == execjournal.FullName {
		for _, c := range p.children {
			p.signal(c)
		}
		return
	}
	if secret, ok := execjournal.SecretOf(name); ok {
		p.deliver(secret)
		return
	}
	if id, ok := execjournal.InboxID(name); ok {
		p.feed(id)
		return
	}
	id, isCancel, ok := execjournal.RequestID(name)
	if !ok {
		return
	}
	if !isCancel {
		p.start(id)
	} else if c := p.children[id]; c != nil { // without a supervisor there is nothing to cancel: agboxd closes the fence
		p.signal(c)
	}
}

// feed wakes the supervisor of an exec whose inbox has changed; so one inotify instance is enough for all execs of a sandbox. Before the
// journal exists, init does not signal the supervisor, which observes the inbox after it has started the command.
func (p *initProcess) feed(id string) {
	c := p.children[id]
	if c == nil {
		return
	}
	if now := p.inbox.filled(id); now != c.fed && p.signal(c) {
		c.fed = now
	}
}

// signal asks a supervisor to check its files, if the journal exists; the supervisor checks for a cancel after it has created the journal.
// It reports whether it sent the signal.
func (p *initProcess) signal(c *child) bool {
	begun, err := execjournal.Exists(p.logs, execjournal.JournalName(c.id))
	return err == nil && begun && unix.Kill(c.pid, unix.SIGTERM) == nil
}

// start starts the supervisor of a request that has no journal.
func (p *initProcess) start(id string) {
	if p.draining || p.children[id] != nil || p.isDead(id) || !p.openLogs() {
		return
	}
	file, _, ok := p.inbox.stat(execjournal.RequestName(id))
	if !ok || p.settled[id] == file {
		return
	}
	begun, err := execjournal.Exists(p.logs, execjournal.JournalName(id))
	if err != nil {
		say("exec %s: %v", id, err)
		return
	}
	if begun {
		delete(p.starting.since, id)
		p.settled[id] = file
		return
	}
	admitted, late := p.starting.admit(id, p.live(), time.Now())
	if !admitted && !late {
		p.retryIn(startPause)
		return
	}
	lock, err := p.lock(id)
	if errors.Is(err, unix.EWOULDBLOCK) {
		p.again(id)
		return
	}
	if err != nil {
		say("exec %s: take its lock: %v", id, err)
		return
	}
	delete(p.busy, id)
	if late {
		p.refuse(id, file, fmt.Sprintf("the sandbox had no memory for another process in %s", startPatience))
		unix.Close(lock)
		return
	}
	p.spawn(id, file, lock)
}

// live returns the number of living supervisors.
func (p *initProcess) live() int {
	n := len(p.children)
	for _, pid := range []int{p.mainPid, p.entry.pid} {
		if pid != 0 {
			n++
		}
	}
	return n
}

func (p *initProcess) again(id string) {
	if p.busy[id]++; p.busy[id] < busyTries {
		p.retryIn(busyPause)
	}
}

// spawn gives the exec and its lock to a supervisor, which is started unless one is ready. If the kernel refuses the process, as it does at
// the pids limit, spawn records that the exec could not be started.
func (p *initProcess) spawn(id string, file fileID, lock int) {
	if p.unable != "" {
		p.refuse(id, file, p.unable)
		unix.Close(lock)
		return
	}
	w, err := p.ready.assign(id, lock, p.spawnSupervisor)
	if err != nil {
		p.refuse(id, file, "the sandbox has no room for another process: "+err.Error())
		unix.Close(lock)
		return
	}
	p.starting.links = append(p.starting.links, w.link)
	p.children[id] = &child{id: id, pid: w.pid, lock: lock, link: w.link, request: file}
	p.channel.started(id, w.link)
}

// spawnSupervisor starts a supervisor that waits for an exec.
func (p *initProcess) spawnSupervisor() (w worker, err error) {
	w.pid, w.link, err = spawnSupervisor(append(p.args(execVerb), unassigned), p.score, p.stop)
	return w, err
}

// launched returns the supervisors whose start is over.
func (p *initProcess) launched() (all []*child) {
	for _, c := range p.children {
		if !slices.Contains(p.starting.links, c.link) {
			all = append(all, c)
		}
	}
	return all
}

// freed handles the bytes of a supervisor whose start is over: it has ended its exec, and waits for another one.
func (p *initProcess) freed(c *child) {
	var b [1]byte
	if n, _ := unix.Read(c.link, b[:]); n != 1 || b[0] != freed {
		return
	}
	delete(p.children, c.id)
	unix.Close(c.lock)
	p.settled[c.id] = c.request
	p.ready.keep(worker{c.pid, c.link}, time.Now())
	p.start(c.id) // if the request file was replaced meanwhile
}

// refuse records that an exec cannot be started. The caller holds its lock.
func (p *initProcess) refuse(id string, file fileID, why string) {
	say("exec %s: %s", id, why)
	ctl, err := execjournal.OpenDir(p.inbox.dir)
	if err != nil {
		return
	}
	defer unix.Close(ctl)
	r, err := execjournal.ReadRequest(ctl, id)
	if r.Nonce == "" {
		say("exec %s: read its request: %v", id, err)
		return
	}
	if err := newRecorder(p.logs, id, r.Nonce).refuse(why); err != nil {
		say("exec %s: record that: %v", id, err)
		return
	}
	p.settled[id] = file
}

// openLogs opens the log directory once it exists.
func (p *initProcess) openLogs() bool {
	if p.logs >= 0 {
		return true
	}
	fd, err := execjournal.OpenDir(p.places.Logs)
	if err != nil {
		say("%v", err)
		return false
	}
	p.logs = fd
	return true
}

// prune deletes the state of requests that agboxd removed.
func (p *initProcess) prune(present map[string]bool) {
	pruneMap(p.failures, present)
	pruneMap(p.busy, present)
	pruneMap(p.starting.since, present)
	pruneMap(p.settled, present)
	p.channel.prune()
}

func pruneMap[V any](byID map[string]V, present map[string]bool) {
	maps.DeleteFunc(byID, func(id string, _ V) bool { return !present[execjournal.RequestName(id)] })
}
