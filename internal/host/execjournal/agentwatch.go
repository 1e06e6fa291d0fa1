package execjournal

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// agentPause is the minimum time between two reads of inotify events. It bounds the wake-ups for a program that prints
// continuously; the first line after a pause is notified at once.
const agentPause = 2 * time.Millisecond

// agentKey names an exec whose files are watched.
type agentKey struct{ sandboxID, execID string }

// agentWatches are the execs to watch, and the inotify instance while WatchAgents runs. The instance is separate from Watch's,
// so that an agent's output does not wake the reconciliation of execs.
type agentWatches struct {
	mu      sync.Mutex
	wanted  map[string]map[string]bool // exec IDs by sandbox ID
	watcher *agentWatcher
}

// WatchAgents calls notify, from one goroutine, whenever the stdout log, the outbox or the acknowledged offset of an exec
// registered with AddAgentWatch has changed, until ctx ends; it then returns nil. Both IDs empty mean any exec: once at the
// start, and after an overflow. A notification only means that ReadLines should be called. notify must not block. Errors: as
// for Watch. At most one WatchAgents may run.
func (d *Dir) WatchAgents(ctx context.Context, notify func(sandboxID, execID string)) error {
	i, err := newInotify()
	if err != nil {
		return err
	}
	w := &agentWatcher{inotify: i, dirs: map[int32]string{}, files: map[int32]agentKey{}}
	defer i.file.Close()
	if err := d.installAgents(w); err != nil {
		return err
	}
	defer d.uninstallAgents()
	notify("", "")
	return i.dispatch(ctx, func(all iter.Seq[event]) {
		for k := range d.changedAgents(w, all) {
			notify(k.sandboxID, k.execID)
		}
	}, func() { notify("", "") }, func(int) time.Duration { return agentPause })
}

// AddAgentWatch starts watching the files of an exec; they need not exist. Idempotent. Read them after the call: earlier
// changes are not notified. Without a running WatchAgents the exec is watched when the next one starts. Errors: invalid
// argument; not found before Prepare; unavailable when the kernel refuses more watches.
func (d *Dir) AddAgentWatch(sandboxID, execID string) error {
	if err := checkIDs(sandboxID, execID); err != nil {
		return err
	}
	a := &d.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted == nil {
		a.wanted = map[string]map[string]bool{}
	}
	if a.wanted[sandboxID] == nil {
		a.wanted[sandboxID] = map[string]bool{}
	}
	a.wanted[sandboxID][execID] = true
	if a.watcher == nil {
		return nil
	}
	return d.addAgent(a.watcher, agentKey{sandboxID, execID})
}

// DropAgentWatch reverts AddAgentWatch. Idempotent. A notification may still be in progress.
func (d *Dir) DropAgentWatch(sandboxID, execID string) {
	a := &d.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wanted[sandboxID], execID)
	last := len(a.wanted[sandboxID]) == 0
	if last {
		delete(a.wanted, sandboxID)
	}
	if a.watcher != nil {
		a.watcher.drop(agentKey{sandboxID, execID}, last)
	}
}

func (d *Dir) installAgents(w *agentWatcher) error {
	a := &d.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watcher != nil {
		return refusedf("a watch of agents is already running")
	}
	for sandboxID, execs := range a.wanted {
		for execID := range execs {
			if err := d.addAgent(w, agentKey{sandboxID, execID}); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	a.watcher = w
	return nil
}

func (d *Dir) uninstallAgents() {
	d.agents.mu.Lock()
	defer d.agents.mu.Unlock()
	d.agents.watcher = nil
}

// forget drops all execs of a sandbox; the kernel removes its watches with the directories.
func (a *agentWatches) forget(sandboxID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wanted, sandboxID)
}

// created watches a new file and reports whether its exec is watched. The watch precedes the first read, so no change is
// missed. When no inotify watch is available, the caller still polls.
func (d *Dir) created(w *agentWatcher, k agentKey) bool {
	d.agents.mu.Lock()
	defer d.agents.mu.Unlock()
	if !d.agents.wanted[k.sandboxID][k.execID] {
		return false
	}
	_ = d.addAgent(w, k)
	return true
}

// addAgent watches both directories before their files, so that it finds files created before and gets events for later ones.
func (d *Dir) addAgent(w *agentWatcher, k agentKey) error {
	d.makeAgentsDir(k.sandboxID)
	for _, src := range []Source{Stdout, Outbox} {
		dir, err := d.openAgentDir(k.sandboxID, src)
		if errors.Is(err, ErrMalformed) || src == Outbox && errors.Is(err, fs.ErrNotExist) {
			continue // nothing to watch; ReadLines returns the error
		}
		if err != nil {
			return err
		}
		err = w.addDir(dir, k.sandboxID)
		for _, name := range sourceNames(k.execID, src) {
			if err == nil {
				err = w.addFile(dir, name, k)
			}
		}
		unix.Close(dir)
		if err != nil {
			return err
		}
	}
	return nil
}

// makeAgentsDir creates the directory of outboxes, as the shim would, so that it can be watched before the shim runs. Anything
// that exists at its path stays.
func (d *Dir) makeAgentsDir(sandboxID string) {
	out, err := openDir(d.Paths(sandboxID).Out)
	if err != nil {
		return
	}
	defer unix.Close(out)
	_ = unix.Mkdirat(out, AgentsDir, 0o755)
}

// changedAgents returns the execs that events concern.
func (d *Dir) changedAgents(w *agentWatcher, all iter.Seq[event]) map[agentKey]bool {
	changed := map[agentKey]bool{}
	for ev := range all {
		k, created := w.lookup(ev)
		if k.execID != "" && (!created || d.created(w, k)) {
			changed[k] = true
		}
	}
	return changed
}
