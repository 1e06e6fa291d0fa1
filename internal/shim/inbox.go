package shim

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// inbox is the directory that the daemon writes requests to, and the inboxes of execs. It may not exist yet.
type inbox struct {
	ctl, dir string
	fd       int // inotify instance; -1 when the kernel gives none
}

func newInbox(ctl string) inbox {
	return inbox{ctl: ctl, dir: filepath.Join(ctl, execjournal.ExecDir), fd: -1}
}

// watch makes sure that new files wake us; false when there is no inotify instance to be had. Watching what is watched
// already changes nothing, and a directory that was recreated is a new one to the kernel.
func (b *inbox) watch() bool {
	if b.fd < 0 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
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

// fill is what an exec's inbox is like.
type fill struct {
	file   fileID
	size   int64
	closed bool
}

// filled looks at the inbox of an exec.
func (b *inbox) filled(id string) (f fill) {
	var st unix.Stat_t
	if unix.Lstat(b.dir+"/"+execjournal.InboxName(id), &st) == nil {
		f.file, f.size = fileID{st.Ino, st.Mtim}, st.Size
	}
	f.closed = unix.Lstat(b.dir+"/"+execjournal.ClosedName(id), &st) == nil
	return f
}

// list returns all names; none when the directory can't be read.
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

// read returns the names that came. all says that only a full look will do: events were dropped, or the directory itself
// came.
func (b *inbox) read() (names []string, all bool) {
	buf := make([]byte, 16<<10)
	n, err := unix.Read(b.fd, buf)
	if err != nil || n <= 0 {
		return nil, false
	}
	for buf = buf[:n]; len(buf) >= unix.SizeofInotifyEvent; {
		mask := binary.NativeEndian.Uint32(buf[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
		buf = buf[end:]
		all = all || mask&unix.IN_Q_OVERFLOW != 0 || name == execjournal.ExecDir && mask&unix.IN_ISDIR != 0
		names = append(names, name)
	}
	return names, all
}
