package recordfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

const (
	tempSuffix = ".tmp"
	// removedName is the file that names the agents that are no more, so that no ID is used twice.
	removedName = "removed"
	// keptBuffer bounds what is kept for the next change.
	keptBuffer = 4 << 20
)

// Agents writes a file for each agent, in a directory that is the daemon's alone:
//
//	<root>/
//	├──<32 hex of the ID's SHA-256>   frames of agbox.store.v1.AgentChange
//	├──removed                        frames of agbox.store.v1.RemovedAgent
//	├──*.tmp                          on the way to one of the above
//	└──*.unknown-<UTC time>           files of no agent that is on record; never read
//
// Each change names what the records of its agent are before it and after it. So whoever reads can tell that one is missing,
// and a daemon that starts, that its file is behind the database. Then, and when most of a file counts no more, it is written
// from the database, in the background: no change is ever kept in memory.
//
// It is a mirror of the store, as Dir is, and what is said there of errors holds here. One caller at a time may hand over
// changes. Invariants: a file is never ahead of the database; what was handed over is with the kernel when the call returns,
// unless the file is behind; of a change all counts or nothing.
type Agents struct {
	root   string
	log    *slog.Logger
	failed func(error)
	slack  int64

	buffer []byte // of the one caller

	mu      sync.Mutex
	files   map[string]*agentFile
	active  map[*agentFile]struct{}  // those that the flusher has to look at
	failing map[*agentFile]time.Time // and when they are tried again; nil is the directory
	newDir  bool                     // the directory's own name is to be synced
	wake    chan struct{}            // holds one: active is not empty

	past removedLog

	flushing sync.Mutex
}

// NewAgents returns the Agents of a directory. It touches nothing. failed is called with each error, for a metric; nil is fine.
func NewAgents(root string, log *slog.Logger, failed func(error)) *Agents {
	if failed == nil {
		failed = func(error) {}
	}
	return &Agents{
		root: root, log: log, failed: failed, slack: agentSlack,
		files: map[string]*agentFile{}, active: map[*agentFile]struct{}{}, failing: map[*agentFile]time.Time{}, wake: make(chan struct{}, 1),
	}
}

// Agent writes a change. It keeps nothing of it.
func (d *Agents) Agent(c *storev1.AgentChange, eventBytes uint64) {
	a := d.file(c.GetAgentId())
	d.after(a, d.change(a, c, eventBytes))
}

func (d *Agents) change(a *agentFile, c *storev1.AgentChange, eventBytes uint64) error {
	dirfd, err := d.open()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.behind = true
		return err
	}
	defer unix.Close(dirfd)
	d.buffer, err = a.change(dirfd, c, d.buffer)
	if cap(d.buffer) > keptBuffer {
		d.buffer = nil
	}
	a.base = max(a.base, int64(eventBytes))
	return err
}

// AgentGone names an agent as removed, and removes its file.
func (d *Agents) AgentGone(r *storev1.RemovedAgent) {
	a := d.file(r.GetAgentId())
	d.mu.Lock()
	delete(d.files, r.GetAgentId())
	d.mu.Unlock()
	d.past.add(r)
	d.after(a, d.remove(a))
}

// remove keeps the file while the agent is not named as removed, so that a rebuild knows its ID by one of them.
func (d *Agents) remove(a *agentFile) error {
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
	dirfd, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	if err := d.past.write(dirfd); err != nil {
		return err
	}
	return a.remove(dirfd)
}

// open returns the directory, which is made if need be.
func (d *Agents) open() (int, error) {
	dirfd, err := openDir(d.root)
	if !errors.Is(err, fs.ErrNotExist) {
		return dirfd, err
	}
	if err := os.MkdirAll(d.root, 0o700); err != nil {
		return -1, fmt.Errorf("make the directory of agents' records: %w", err)
	}
	d.mu.Lock()
	d.newDir = true
	d.mu.Unlock()
	return openDir(d.root)
}

func (d *Agents) file(id string) *agentFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.files[id]
	if a == nil {
		a = &agentFile{id: id, name: AgentFileName(id)}
		d.files[id] = a
	}
	return a
}

// after notes the outcome of a write, and leaves the rest to the flusher.
func (d *Agents) after(a *agentFile, err error) {
	d.note(a, err)
	d.mu.Lock()
	d.active[a] = struct{}{}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// note logs the first error of many, and the end of the last one.
func (d *Agents) note(a *agentFile, err error) {
	d.mu.Lock()
	_, was := d.failing[a]
	first, last := err != nil && len(d.failing) == 0, err == nil && was && len(d.failing) == 1
	if err != nil {
		d.failing[a] = time.Now().Add(retryAfter)
	} else {
		delete(d.failing, a)
	}
	d.mu.Unlock()
	switch {
	case err != nil:
		d.failed(err)
		if first {
			d.log.Error("the records of agents beside the database can't be written; it is tried again", "err", err)
		}
	case last:
		d.log.Info("the records of agents beside the database are written again")
	}
}
