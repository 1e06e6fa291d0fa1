package execjournal

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"time"

	"golang.org/x/sys/unix"
)

// agentPause is the minimum time between two reads of inotify events. It bounds the wake-ups for a program that prints
// continuously; the first line after a pause is notified at once.
//
// The instance is separate from Watch's, so that an agent's output does not wake the reconciliation of execs. For each sandbox it watches
// two directories, for new files, and for each exec its two files, for writes. It does not watch writes through the directories, which
// contain the logs of all execs.
const agentPause = 2 * time.Millisecond

// WatchAgents calls notify, from one goroutine, whenever the stdout log or the outbox of an exec
// registered with AddAgentWatch has changed, until ctx ends; it then returns nil. An empty execID means all of the sandbox: PID 1 of their
// container got TERM. Both IDs empty mean any exec: once at the start, and after an overflow. A notification only means that ReadLines should be called. notify must not block. Errors: as
// for Watch. At most one WatchAgents may run.
func (d *Dir) WatchAgents(ctx context.Context, notify func(sandboxID, execID string)) error {
	i, err := newWatchSet()
	if err != nil {
		return err
	}
	return d.run(ctx, i, watchLoop{
		mu: &d.agentMu, slot: &d.agentWatcher, install: d.installAgents, changed: d.changedAgent, pause: func(int) time.Duration { return agentPause },
	}, notify)
}

// AddAgentWatch starts watching the files of an exec; they need not exist. Idempotent. Read them after the call: earlier
// changes are not notified. Without a running WatchAgents the exec is watched when the next one starts. Errors: invalid
// argument; not found before Prepare; unavailable when the kernel refuses more watches.
func (d *Dir) AddAgentWatch(sandboxID, execID string) error {
	if err := checkIDs(sandboxID, execID); err != nil {
		return err
	}
	d.agentMu.Lock()
	defer d.agentMu.Unlock()
	k := execKey{sandboxID, execID}
	d.agents[k] = true
	if d.agentWatcher == nil {
		return nil
	}
	return d.addAgent(k)
}

// DropAgentWatch reverts AddAgentWatch. Idempotent. A notification may still be in progress. A removed watch may be of a file that another
// exec shares by a hard link, which only its own sandbox can have created.
func (d *Dir) DropAgentWatch(sandboxID, execID string) {
	d.agentMu.Lock()
	defer d.agentMu.Unlock()
	dropped := execKey{sandboxID, execID}
	delete(d.agents, dropped)
	last := true // of its sandbox: the directories need no watches either
	for k := range d.agents {
		last = last && k.sandboxID != sandboxID
	}
	if d.agentWatcher != nil {
		d.agentWatcher.remove(func(k execKey) bool { return k == dropped || last && k == execKey{sandboxID: sandboxID} })
	}
}

// forgetAgents drops all execs of a sandbox.
func (d *Dir) forgetAgents(sandboxID string) {
	d.agentMu.Lock()
	defer d.agentMu.Unlock()
	maps.DeleteFunc(d.agents, func(k execKey, _ bool) bool { return k.sandboxID == sandboxID })
}

func (d *Dir) installAgents() error {
	for k := range d.agents {
		if err := d.addAgent(k); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// addAgent watches both directories before their files, so that it finds files created before and gets events for later ones. It makes
// the directory of outboxes, as the shim would, so that it can be watched before the shim runs. d.agentMu is held.
func (d *Dir) addAgent(k execKey) error {
	w := d.agentWatcher
	for _, src := range []Source{Stdout, Outbox} {
		dir, err := d.openAgentDir(k.sandboxID, src, true)
		if errors.Is(err, ErrMalformed) || src == Outbox && errors.Is(err, fs.ErrNotExist) {
			continue // nothing to watch; ReadLines returns the error
		}
		if err != nil {
			return err
		}
		err = w.add(pathOf(dir), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR, execKey{sandboxID: k.sandboxID})
		if err == nil {
			err = addFile(w, dir, sourceName(k.execID, src), k)
		}
		unix.Close(dir)
		if err != nil {
			return err
		}
	}
	return nil
}

// addFile watches name if it is a regular file; anything else is ignored.
func addFile(w *watchSet, dir int, name string, k execKey) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	err = w.add(pathOf(fd), unix.IN_MODIFY, k)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil // not readable by the daemon, or removed
	}
	return err
}

// changedAgent returns the exec that an event concerns. It watches a new file: the watch precedes the first read, so no change is missed.
// When no inotify watch is available, the caller still polls.
func (d *Dir) changedAgent(k execKey, name string) execKey {
	if k.execID != "" {
		return k
	}
	if name == TerminatedName {
		return k // all agents of the sandbox
	}
	id, _ := ownerOf(name, stdoutSuffix, wordsSuffix) // a new file in a directory
	if k.execID = id; !d.agents[k] {
		return execKey{}
	}
	_ = d.addAgent(k)
	return k
}
