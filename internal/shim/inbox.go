package shim

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/inotify"
)

// inbox is the directory to which agboxd writes request files, cancels and the inboxes of execs. It may not exist yet.
type inbox struct {
	ctl, dir string
	fd       int // inotify instance; -1: none yet, or the kernel refused one
}

func newInbox(ctl string) inbox {
	return inbox{ctl: ctl, dir: filepath.Join(ctl, execjournal.ExecDir), fd: -1}
}

// watch adds inotify watches for new files and reports whether inotify works. Adding an existing watch changes nothing; a recreated
// directory needs a new watch, so watch is called before each listing.
func (b *inbox) watch() bool {
	if b.fd < 0 {
		fd, err := inotify.Open()
		if err != nil {
			return false
		}
		b.fd = fd
	}
	const arrivals = unix.IN_MOVED_TO | unix.IN_CREATE
	_, dirErr := unix.InotifyAddWatch(b.fd, b.dir, arrivals|unix.IN_MODIFY|unix.IN_ONLYDIR)
	_, ctlErr := unix.InotifyAddWatch(b.fd, b.ctl, arrivals|unix.IN_ONLYDIR)
	return dirErr == nil || ctlErr == nil && errors.Is(dirErr, unix.ENOENT)
}

// fill is the observed state of an exec's inbox: which file it is, its size in bytes, whether it is closed, and whether the terminal hangs up.
type fill struct {
	file           fileID
	size           int64
	closed, hangup bool
}

// filled observes the inbox of an exec.
func (b *inbox) filled(id string) (f fill) {
	f.file, f.size, _ = b.stat(execjournal.InboxName(id))
	_, _, f.closed = b.stat(execjournal.ClosedName(id))
	_, _, f.hangup = b.stat(execjournal.HangupName(id))
	return f
}

// stat identifies a file; ok is false if it is missing.
func (b *inbox) stat(name string) (file fileID, size int64, ok bool) {
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(b.dir, name), &st) != nil {
		return fileID{}, 0, false
	}
	return fileID{st.Ino, st.Mtim}, st.Size, true
}

// list returns the names of all files; none if the directory cannot be read.
func (b *inbox) list() []string {
	dir, err := os.Open(b.dir)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		say("list %s: %v", b.dir, err)
	}
	return names
}

// read returns the names of the pending inotify events. all reports that the caller must list the directory: the kernel dropped events, or
// the directory itself was created.
func (b *inbox) read() (names []string, all bool) {
	buf := make([]byte, 16<<10)
	n, err := unix.Read(b.fd, buf)
	if err != nil || n <= 0 {
		return nil, false
	}
	for ev := range inotify.Events(buf[:n]) {
		all = all || ev.Mask&unix.IN_Q_OVERFLOW != 0 || ev.Name == execjournal.ExecDir && ev.Mask&unix.IN_ISDIR != 0
		names = append(names, ev.Name)
	}
	return names, all
}
