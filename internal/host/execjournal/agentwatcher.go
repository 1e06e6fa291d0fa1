package execjournal

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// agentWatcher is one inotify instance. For each sandbox it watches two directories, for new files, and for each exec its two
// files, for writes. It does not watch writes through the directories, which contain the logs of all execs.
type agentWatcher struct {
	inotify *inotify

	mu    sync.Mutex
	dirs  map[int32]string // sandbox IDs
	files map[int32]agentKey
}

func (w *agentWatcher) addDir(dir int, sandboxID string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, err := w.add(dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	if err != nil {
		return err
	}
	w.dirs[wd] = sandboxID
	return nil
}

// addFile watches name if it is a regular file; anything else is ignored.
func (w *agentWatcher) addFile(dir int, name string, k agentKey) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, err := w.add(fd, unix.IN_MODIFY)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil // not readable by the daemon, or removed
	}
	if err == nil {
		w.files[wd] = k
	}
	return err
}

// add watches the inode that fd refers to, without another lookup of the name. The caller holds mu.
func (w *agentWatcher) add(fd int, mask uint32) (int32, error) {
	return w.inotify.add("/proc/self/fd/"+strconv.Itoa(fd), mask)
}

// drop removes the watches of an exec, and with the last one of a sandbox those of its directories. A removed watch may be of
// a file that another exec shares by a hard link, which only its own sandbox can have created.
func (w *agentWatcher) drop(k agentKey, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wd, other := range w.files {
		if other == k {
			w.inotify.remove(wd)
			delete(w.files, wd)
		}
	}
	for wd, sandboxID := range w.dirs {
		if last && sandboxID == k.sandboxID {
			w.inotify.remove(wd)
			delete(w.dirs, wd)
		}
	}
}

// lookup returns the exec that an event concerns; created says that a file of its name was created.
func (w *agentWatcher) lookup(ev event) (k agentKey, created bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, isFile := w.files[ev.wd]
	sandboxID, isDir := w.dirs[ev.wd]
	if ev.mask&unix.IN_IGNORED != 0 {
		delete(w.files, ev.wd)
		delete(w.dirs, ev.wd)
		return agentKey{}, false
	}
	if isFile || !isDir {
		return k, false
	}
	id, ok := agentOwner(ev.name)
	return agentKey{sandboxID, id}, ok
}

// agentOwner returns the exec whose output or outbox a file of that name is.
func agentOwner(name string) (string, bool) {
	for _, suffix := range []string{StdoutName(""), wordsSuffix, outboxSuffix} {
		if id, ok := strings.CutSuffix(name, suffix); ok {
			return id, ValidExecID(id)
		}
	}
	return "", false
}
