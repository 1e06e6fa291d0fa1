package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// busyTries and busyPause: a lock is held without a journal for an instant at most, unless by somebody who has no
	// business with it; then the rescan goes on trying.
	busyTries = 50
	busyPause = 20 * time.Millisecond
	// maxFailures supervisors that died before they created the journal are enough to call the exec unstartable.
	maxFailures = 3
)

// fileID tells two files of one name apart.
type fileID struct {
	inode uint64
	mtime unix.Timespec
}

// identify returns which file the request of an exec is now; ok is false when there is none.
func (b *inbox) identify(id string) (file fileID, ok bool) {
	var st unix.Stat_t
	if err := unix.Lstat(b.dir+"/"+execjournal.RequestName(id), &st); err != nil {
		return fileID{}, false
	}
	return fileID{st.Ino, st.Mtim}, true
}

// consider acts on one file of the inbox.
func (p *initProcess) consider(name string) {
	if name == execjournal.ReleaseName {
		p.release()
		return
	}
	if !p.released && !p.proves(name) {
		return // the release has everything looked at again
	}
	if name == execjournal.FullName {
		for _, c := range p.children {
			p.rouse(c)
		}
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
	if isCancel {
		p.cancel(id)
		return
	}
	p.start(id)
}

// cancel wakes the supervisor, which reads the cancel itself. Before there is a journal it is not signalled: it looks for
// a cancel after it has created it. Without a supervisor there is nothing to cancel: the daemon closes the fence.
func (p *initProcess) cancel(id string) {
	if c := p.children[id]; c != nil {
		p.rouse(c)
	}
}

// feed wakes the supervisor of an exec whose inbox has changed: one inotify instance is enough for all of a sandbox. Before
// there is a journal it is not signalled either, and looks by itself afterwards.
func (p *initProcess) feed(id string) {
	c := p.children[id]
	if c == nil {
		return
	}
	if now := p.inbox.filled(id); now != c.fed && p.rouse(c) {
		c.fed = now
	}
}

// rouse has a supervisor look at its files.
func (p *initProcess) rouse(c *child) bool {
	begun, err := execjournal.Exists(p.logs, execjournal.JournalName(c.id))
	return err == nil && begun && unix.Kill(c.pid, unix.SIGTERM) == nil
}

// start starts the supervisor of a request that has no journal.
func (p *initProcess) start(id string) {
	if p.draining || p.children[id] != nil || p.isDead(id) || !p.openLogs() {
		return
	}
	file, ok := p.inbox.identify(id)
	if seen, known := p.settled[id]; !ok || known && seen == file {
		return
	}
	begun, err := execjournal.Exists(p.logs, execjournal.JournalName(id))
	if err != nil {
		say("exec %s: %v", id, err)
		return
	}
	if begun {
		p.settled[id] = file
		return
	}
	now := time.Now()
	admitted, late := p.starting.admit(id, p.live(), now)
	if !admitted && !late {
		p.soon = now.Add(startPause)
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

// live is the number of supervisors.
func (p *initProcess) live() int {
	if p.mainPid != 0 {
		return len(p.children) + 1
	}
	return len(p.children)
}

func (p *initProcess) again(id string) {
	if p.busy[id]++; p.busy[id] < busyTries {
		p.soon = time.Now().Add(busyPause)
	}
}

// spawn starts a supervisor that inherits the lock. A kernel that refuses the process, as it does at the pids limit, makes
// the exec one that could not be started.
func (p *initProcess) spawn(id string, file fileID, lock int) {
	if p.unable != "" {
		p.refuse(id, file, p.unable)
		unix.Close(lock)
		return
	}
	argv := append(p.args("exec"), id)
	pid, err := p.starting.spawn(argv, p.score, p.stop, uintptr(lock))
	if err != nil {
		p.refuse(id, file, "the sandbox has no room for another process: "+err.Error())
		unix.Close(lock)
		return
	}
	p.children[id] = &child{id: id, pid: pid, lock: lock, request: file}
}

// refuse records that an exec can't be started. The caller holds its lock.
func (p *initProcess) refuse(id string, file fileID, why string) {
	say("exec %s: %s", id, why)
	ctl, err := openDir(p.inbox.dir)
	if err != nil {
		return
	}
	defer unix.Close(ctl)
	r, err := readRequest(ctl, id)
	if r.Nonce == "" {
		say("exec %s: read its request: %v", id, err)
		return
	}
	err = newRecorder(p.logs, id, r.Nonce).refuse(time.Now().UnixNano(), exitCannotRun, why)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		say("exec %s: record that: %v", id, err)
		return
	}
	p.settled[id] = file
}

// openLogs opens the log directory once it is there.
func (p *initProcess) openLogs() bool {
	if p.logs >= 0 {
		return true
	}
	fd, err := openDir(p.places.logs)
	if err != nil {
		say("%v", err)
		return false
	}
	p.logs = fd
	return true
}

// prune forgets what the daemon took back.
func (p *initProcess) prune(present map[string]bool) {
	for _, m := range []map[string]int{p.failures, p.busy} {
		for id := range m {
			if !present[execjournal.RequestName(id)] {
				delete(m, id)
			}
		}
	}
	for id := range p.starting.since {
		if !present[execjournal.RequestName(id)] {
			delete(p.starting.since, id)
		}
	}
	for id := range p.settled {
		if !present[execjournal.RequestName(id)] {
			delete(p.settled, id)
		}
	}
}
