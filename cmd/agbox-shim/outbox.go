package main

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execjournal"
)

// makeOutbox makes the empty outbox of an exec, which everybody inside may write to. Its ID is new, so that whatever is
// there is nobody's.
func makeOutbox(out, id string) error {
	dir, err := openDir(out)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, execjournal.AgentsDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", execjournal.AgentsDir, err)
	}
	agents, err := unix.Openat(dir, execjournal.AgentsDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", execjournal.AgentsDir, err)
	}
	defer unix.Close(agents)
	name := execjournal.OutboxName(id)
	if err := unix.Unlinkat(agents, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what is in the place of %s: %w", name, err)
	}
	const mode = 0o666
	fd, err := unix.Openat(agents, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode) // whatever our umask
}

// appendOutbox adds a line to the outbox of an exec. Lines of several programs do not mix; one that a full disk tore off is
// ended by the next. A line that is being written looks torn, and so there can be empty lines, which mean nothing.
func appendOutbox(out, id string, line []byte) error {
	const flags = unix.O_RDWR | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	path := out + "/" + execjournal.AgentsDir + "/" + execjournal.OutboxName(id)
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is not a regular file", path)
	}
	line = append(line, '\n')
	last := []byte{'\n'}
	if n, err := unix.Pread(fd, last, st.Size-1); err == nil && n == 1 && last[0] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	n, err := unix.Write(fd, line)
	if err == nil && n < len(line) {
		err = unix.ENOSPC
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", path, err)
	}
	return nil
}
