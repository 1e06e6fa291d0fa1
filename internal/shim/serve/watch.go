package serve

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/inotify"
)

const (
	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
	// renameGap is how long the second half of a rename may take: the kernel queues the halves one after the other, but a read may end
	// between them.
	renameGap = 10 * time.Millisecond
	// maxChanges and maxChangeBytes bound one frame.
	maxChanges     = 256
	maxChangeBytes = channel.MaxData / 8
)

// watcher reports the changes below a directory.
//
// No change is lost silently: a directory is watched before it is listed, its contents at the start of its watch are reported as
// created, and when the kernel drops events, the watcher starts again with no watch and reports Overflow once everything is watched.
//
// Events of inotify have names, and when a name is read, another file may have it. So a change can be reported twice, or with a former or later
// name of the file. The last change of a name, or of a directory above it, is always reported.
type watcher struct {
	*stream
	in      *os.File
	dirs    map[int32]string // path relative to the watched directory by watch descriptor; "" is the directory itself
	from    string           // a file that was renamed, while its new name is not known
	cookie  uint32
	changes []channel.Change
	size    int
	last    map[channel.Change]bool // reported in this batch
}

// errRestart means that the kernel has dropped events.
var errRestart = errors.New("the queue of inotify overflowed")

func watchDir(s *stream) error {
	w := &watcher{stream: s}
	err := w.open()
	if err != nil {
		return err
	}
	defer func() { w.in.Close() }()
	if err := s.result(nil); err != nil {
		return err
	}
	// The daemon sends nothing: a read returns when it leaves.
	left := make(chan struct{})
	go func() {
		defer close(left)
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = s.SetWriteDeadline(time.Unix(1, 0)) // ends a blocked write
		}
	}()
	defer func() {
		_ = s.SetReadDeadline(time.Unix(1, 0))
		<-left
	}()
	for {
		err := w.loop(left)
		if !errors.Is(err, errRestart) {
			return err
		}
		w.in.Close()
		if err := w.open(); err != nil {
			return err
		}
		err = w.queue(channel.Change{Kind: channel.Overflow})
		if err == nil {
			err = w.flush()
		}
		if err != nil {
			return err
		}
	}
}

// open watches everything from nothing.
func (w *watcher) open() error {
	fd, err := inotify.Open()
	if err != nil {
		return watchError(w.path, err)
	}
	w.in, w.dirs, w.from = os.NewFile(uintptr(fd), "inotify"), map[int32]string{}, ""
	if err := w.add("", true); err != nil {
		w.in.Close()
		return err
	}
	return nil
}

func watchError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return &channel.Failed{Reason: channel.WatchLimit, Message: "watch " + name + ": this user has as many watchers as the host allows (fs.inotify.max_user_instances)"}
	case errors.Is(err, unix.ENOSPC):
		return &channel.Failed{Reason: channel.WatchLimit, Message: "watch " + name + ": this user watches as many directories as the host allows (fs.inotify.max_user_watches)"}
	}
	return pathError("watch", name, err)
}

func (w *watcher) full(rel string) string {
	if rel == "" {
		return w.path
	}
	return strings.TrimSuffix(w.path, "/") + "/" + rel
}

// add watches a directory and, if recursive, those below it. It reports the contents of each newly watched one as created, unless first.
// A directory that is gone, that became something else or that the user may not read is left out, except the root.
func (w *watcher) add(rel string, first bool) error {
	mask := uint32(watchMask)
	if rel != "" {
		mask |= unix.IN_DONT_FOLLOW
	}
	wd, err := unix.InotifyAddWatch(int(w.in.Fd()), w.full(rel), mask)
	if err != nil {
		if rel != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrPermission)) {
			return nil
		}
		return watchError(w.full(rel), err)
	}
	_, known := w.dirs[int32(wd)]
	w.dirs[int32(wd)] = rel
	if !w.call.Recursive {
		return nil
	}
	f, err := os.Open(w.full(rel))
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			name := path.Join(rel, e.Name())
			if !first && !known {
				if err := w.queue(channel.Change{Kind: channel.Created, Name: name}); err != nil {
					return err
				}
			}
			if e.IsDir() {
				if err := w.add(name, first); err != nil {
					return err
				}
			}
		}
		if err != nil {
			return nil //nolint:nilerr // io.EOF; a directory that disappears
		}
	}
}

// loop reports events until the daemon leaves, the directory is gone, or events were dropped.
func (w *watcher) loop(left <-chan struct{}) error {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-left:
			_ = w.in.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	defer func() { close(stop); <-done }()
	buf := make([]byte, 64<<10)
	for {
		if w.from != "" {
			_ = w.in.SetReadDeadline(time.Now().Add(renameGap))
		}
		n, err := w.in.Read(buf)
		select {
		case <-left:
			return nil
		default:
		}
		if w.from != "" {
			_ = w.in.SetReadDeadline(time.Time{})
			select {
			case <-left: // the line above may have cleared its deadline
				return nil
			default:
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = w.movedAway()
		} else if err == nil {
			err = w.batch(buf[:n])
		}
		if err == nil {
			err = w.flush()
		}
		if err != nil {
			return err
		}
	}
}

// batch handles the events of one read.
func (w *watcher) batch(buf []byte) error {
	w.last = map[channel.Change]bool{}
	for ev := range inotify.Events(buf) {
		if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
			return errRestart
		}
		if err := w.event(ev); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) event(ev inotify.Event) error {
	mask, cookie, base := ev.Mask, ev.Cookie, ev.Name
	dir, known := w.dirs[ev.Watch]
	if !known {
		return nil // its watch was removed
	}
	if w.from != "" && (mask&unix.IN_MOVED_TO == 0 || cookie != w.cookie) && mask&unix.IN_MOVE_SELF == 0 {
		if err := w.movedAway(); err != nil {
			return err
		}
	}
	rel, isDir := path.Join(dir, base), mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_IGNORED != 0:
		delete(w.dirs, ev.Watch)
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
		if dir == "" {
			return pathError("watch", w.path, unix.ENOENT)
		}
	case mask&unix.IN_MOVED_FROM != 0:
		w.from, w.cookie = rel, cookie
	case mask&unix.IN_MOVED_TO != 0:
		return w.movedTo(rel, isDir)
	case mask&unix.IN_CREATE != 0:
		return w.created(rel, isDir)
	case mask&unix.IN_DELETE != 0:
		return w.queue(channel.Change{Kind: channel.Removed, Name: rel})
	case base == "": // of the directory itself; its parent, if it is watched, has reported it
	case mask&unix.IN_MODIFY != 0:
		return w.queue(channel.Change{Kind: channel.Written, Name: rel})
	case mask&unix.IN_ATTRIB != 0:
		return w.queue(channel.Change{Kind: channel.Attributes, Name: rel})
	}
	return nil
}

func (w *watcher) created(rel string, isDir bool) error {
	if err := w.queue(channel.Change{Kind: channel.Created, Name: rel}); err != nil || !isDir || !w.call.Recursive {
		return err
	}
	return w.add(rel, false)
}

// movedTo handles the second half of a rename. A file that came from elsewhere is created.
func (w *watcher) movedTo(rel string, isDir bool) error {
	old := w.from
	w.from = ""
	if old == "" {
		return w.created(rel, isDir)
	}
	if err := w.queue(channel.Change{Kind: channel.Renamed, Name: rel, Old: old}); err != nil || !isDir || !w.call.Recursive {
		return err
	}
	return w.add(rel, false) // the kernel returns the same descriptors, which get their new paths
}

// movedAway handles a rename to a place that is not watched.
func (w *watcher) movedAway() error {
	old := w.from
	w.from = ""
	if old == "" {
		return nil
	}
	maps.DeleteFunc(w.dirs, func(wd int32, rel string) bool {
		gone := rel == old || strings.HasPrefix(rel, old+"/")
		if gone {
			_, _ = unix.InotifyRmWatch(int(w.in.Fd()), uint32(wd)) // fails if the directory was removed meanwhile
		}
		return gone
	})
	return w.queue(channel.Change{Kind: channel.Removed, Name: old})
}

// queue adds a change to the next frame. Within a batch, a repeated write or change of attributes is reported once.
func (w *watcher) queue(c channel.Change) error {
	c.Name, c.Old = strings.ToValidUTF8(c.Name, "\uFFFD"), strings.ToValidUTF8(c.Old, "\uFFFD")
	if c.Kind == channel.Written || c.Kind == channel.Attributes {
		if w.last[c] {
			return nil
		}
		w.last[c] = true
	} else {
		clear(w.last) // what follows happens to another file of the name
	}
	w.changes = append(w.changes, c)
	w.size += 64 + len(c.Name) + len(c.Old)
	if len(w.changes) < maxChanges && w.size < maxChangeBytes {
		return nil
	}
	return w.flush()
}

func (w *watcher) flush() error {
	if len(w.changes) == 0 {
		return nil
	}
	err := channel.WriteJSON(w.stream, channel.Data, w.changes)
	w.changes, w.size = w.changes[:0], 0
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
