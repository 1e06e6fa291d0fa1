package execjournal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"golang.org/x/sys/unix"
)

// agentPause is the least time between two reads of what happened. A program that prints without a break costs no more
// wake-ups than that; the first line after a silence is told at once.
const agentPause = 2 * time.Millisecond

// agentKey names an exec whose files are watched.
type agentKey struct{ sandboxID, execID string }

// agentWatches are the execs to watch, and the instance that does it while WatchAgents runs. It is apart from that of
// Watch, so that no output of an agent wakes the passes of execs.
type agentWatches struct {
	mu      sync.Mutex
	wanted  map[string]map[string]bool // exec IDs by sandbox ID
	watcher *agentWatcher
}

// WatchAgents calls notify, from one goroutine, whenever the stdout log, the outbox or the acknowledged offset of an exec
// that AddAgentWatch named has changed, until ctx ends; it then returns nil. Both IDs empty mean any of them: once at the
// start, and after an overflow. A notification is only a reason to ReadLines. notify must not block. Errors: as of Watch. At
// most one WatchAgents may run.
func (d *Dir) WatchAgents(ctx context.Context, notify func(sandboxID, execID string)) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return unavailablef("make an inotify instance: %w", err)
	}
	w := &agentWatcher{file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{}, files: map[int32]agentKey{}}
	stop := context.AfterFunc(ctx, func() { w.file.Close() })
	defer stop()
	defer w.file.Close()
	if err := d.installAgents(w); err != nil {
		return err
	}
	defer d.uninstallAgents()
	notify("", "")
	for {
		if err := d.nextAgents(ctx, w, notify); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read inotify: %w", err)
		}
	}
}

// AddAgentWatch has the files of an exec watched from now on; they need not exist. Idempotent. Read them after it: what
// happened before is not told. Without a running WatchAgents it is only remembered for the next one. Errors: invalid
// argument; not found before Prepare; unavailable when the kernel gives no more watches.
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

// DropAgentWatch takes AddAgentWatch back. Idempotent. A notification may still be under way.
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

// forget drops all execs of a sandbox; the kernel's watches go with its directories.
func (a *agentWatches) forget(sandboxID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wanted, sandboxID)
}

// came watches a new file and reports whether its exec is wanted. The watch precedes the first read, so nothing is missed.
// Where no inotify watch is free, the caller still polls.
func (d *Dir) came(w *agentWatcher, k agentKey) bool {
	d.agents.mu.Lock()
	defer d.agents.mu.Unlock()
	if !d.agents.wanted[k.sandboxID][k.execID] {
		return false
	}
	_ = d.addAgent(w, k)
	return true
}

// addAgent watches both directories first: a file that comes after that is seen, and one that was there is found.
func (d *Dir) addAgent(w *agentWatcher, k agentKey) error {
	d.makeAgentsDir(k.sandboxID)
	for _, src := range []Source{Stdout, Outbox} {
		dir, err := d.openAgentDir(k.sandboxID, src)
		if errors.Is(err, ErrMalformed) || src == Outbox && errors.Is(err, fs.ErrNotExist) {
			continue // ReadLines tells; there is nothing to watch
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

// makeAgentsDir makes the directory of outboxes, which the shim would make as well, so that it can be watched before there
// is one. Whatever is in its place stays there.
func (d *Dir) makeAgentsDir(sandboxID string) {
	out, err := openDir(d.Paths(sandboxID).Out)
	if err != nil {
		return
	}
	defer unix.Close(out)
	_ = unix.Mkdirat(out, AgentsDir, 0o755)
}

// nextAgents waits for what happens and tells it, each exec once.
func (d *Dir) nextAgents(ctx context.Context, w *agentWatcher, notify func(sandboxID, execID string)) error {
	buf := make([]byte, watchBuffer)
	n, err := w.file.Read(buf)
	if err != nil {
		return err
	}
	changed, overflow := d.changedAgents(w, buf[:n])
	for k := range changed {
		notify(k.sandboxID, k.execID)
	}
	if overflow {
		notify("", "")
		return wait.For(ctx, overflowPause)
	}
	return wait.For(ctx, agentPause)
}

func (d *Dir) changedAgents(w *agentWatcher, buf []byte) (changed map[agentKey]bool, overflow bool) {
	changed = map[agentKey]bool{}
	for ev := range events(buf) {
		overflow = overflow || ev.mask&unix.IN_Q_OVERFLOW != 0
		k, came := w.lookup(ev)
		if k.execID != "" && (!came || d.came(w, k)) {
			changed[k] = true
		}
	}
	return changed, overflow
}
