package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// outbox is what the programs of an agent speak into: a FIFO that everybody inside may write to, and a file that only we write to.
// So the file has a limit, and nobody can make it longer, sparse or empty. Both are new with each exec.
type outbox struct {
	*stream
	agents int // directory
	id     string
	shut   bool // the FIFO takes nothing more
}

const (
	// openMode lets everybody write to the FIFO, and nobody but root take from it what others wrote.
	openMode = 0o622
	shutMode = 0o600
)

// makeOutbox makes the two files of an exec's outbox. The daemon reads the first that it finds, so the file is made before the FIFO.
func makeOutbox(out, id string, limit int64) (*outbox, error) {
	agents, err := openAgents(out)
	if err != nil {
		return nil, err
	}
	b := &outbox{agents: agents, id: id, stream: &stream{pipe: -1, dir: agents, limit: limit}}
	fifo, words := execjournal.OutboxName(id), execjournal.WordsName(id)
	for _, name := range []string{fifo, words} {
		if err := unix.Unlinkat(agents, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove what is in the place of %s: %w", name, err)
		}
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if b.log, err = unix.Openat(agents, words, flags, execjournal.PrivateMode); err != nil {
		return nil, fmt.Errorf("make %s: %w", words, err)
	}
	if err := unix.Mknodat(agents, fifo, unix.S_IFIFO|shutMode, 0); err != nil {
		return nil, fmt.Errorf("make %s: %w", fifo, err)
	}
	// Our own write end keeps the FIFO from ending when a writer closes it.
	if b.pipe, err = unix.Openat(agents, fifo, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", fifo, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(b.pipe, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil, fmt.Errorf("%s is not the FIFO that was made", fifo)
	}
	return b, unix.Fchmod(b.pipe, openMode) // whatever our umask
}

// openAgents opens the directory of outboxes, and makes it if it is missing.
func openAgents(out string) (int, error) {
	dir, err := openDir(out)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, execjournal.AgentsDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, fmt.Errorf("make %s: %w", execjournal.AgentsDir, err)
	}
	fd, err := unix.Openat(dir, execjournal.AgentsDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", execjournal.AgentsDir, err)
	}
	return fd, nil
}

// settle refuses programs once the limit is reached.
func (b *outbox) settle() {
	if b != nil && b.limit > 0 && b.taken >= b.limit {
		b.close()
	}
}

// close has the FIFO refuse programs that open it, and drops what those write that have it open. What was written before is kept up
// to the limit.
func (b *outbox) close() {
	if b.shut {
		return
	}
	b.shut = true
	say("exec %s: its outbox takes nothing more after %d bytes", b.id, b.taken)
	if err := unix.Fchmod(b.pipe, shutMode); err != nil {
		say("exec %s: close its outbox: %v", b.id, err)
	}
	b.drain(make([]byte, 64<<10))
	b.closed = true
}

// remove takes the FIFO away: nobody reads it any more, and who opened it would wait.
func (b *outbox) remove() {
	if b != nil {
		_ = unix.Unlinkat(b.agents, execjournal.OutboxName(b.id), 0)
	}
}

// speakTime is how long a program waits until the outbox has taken its line: the supervisor reads nothing while the disk is full.
const speakTime = 20 * time.Second

var errShut = errors.New("the outbox of this agent takes nothing more: the sandbox has used up what it may store (artifacts.exec_log_max_bytes, artifacts.sandbox_max_bytes)")

// appendOutbox writes a line into the outbox of an exec. Lines of several calls do not mix. It begins with a newline, since a program
// that writes by itself may have left a line without its end; empty lines mean nothing.
func appendOutbox(out, id string, line []byte) error {
	path := out + "/" + execjournal.AgentsDir + "/" + execjournal.OutboxName(id)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EACCES):
		return errShut
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("open %s: nobody reads it any more", path)
	case err != nil:
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("%s is not a FIFO", path)
	}
	if st.Mode&0o777 == shutMode { // root may open it all the same
		return errShut
	}
	deadline := time.Now().Add(speakTime)
	err = lockUntil(fd, deadline)
	if err == nil {
		err = writeUntil(fd, append(append([]byte{'\n'}, line...), '\n'), deadline)
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", path, err)
	}
	return nil
}

// lockUntil keeps other calls from writing between the pieces of a long line.
func lockUntil(fd int, deadline time.Time) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("another program holds it: %w", os.ErrDeadlineExceeded)
		}
		time.Sleep(5 * time.Millisecond) // flock(2) has no deadline to wait with
	}
}

// writeUntil writes all of data to a pipe that does not block.
func writeUntil(fd int, data []byte, deadline time.Time) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch {
		case err == nil:
			data = data[n:]
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return err
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("nothing was read of it for %v, as on a full disk: %w", speakTime, os.ErrDeadlineExceeded)
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds, pollTimeout(deadline)) // the next write says what there is
	}
	return nil
}
