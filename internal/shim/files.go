package shim

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

func cancelled(ctl int, r execjournal.Request) bool {
	is, _ := execjournal.Cancelled(ctl, r.ExecID, r.Nonce)
	return is
}

// openLog opens a log for appending. Other users may not read it until shareLog. It returns ErrMalformed if name is not a regular file.
func openLog(logs int, name string) (int, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(logs, name, flags, execjournal.PrivateMode)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
		return -1, fmt.Errorf("%w: %s is not a regular file", execjournal.ErrMalformed, name)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, fmt.Errorf("%w: %s is not a regular file", execjournal.ErrMalformed, name)
	}
	return fd, nil
}

// shareLog lets the user that runs the command read its log.
func shareLog(dir, log int, who passwd.Identity) error {
	if err := execjournal.Entrust(dir, log, int(who.GID), execjournal.LogMode); err != nil {
		return fmt.Errorf("set the mode of a log: %w", err)
	}
	return nil
}

// sameFile reports whether fd is the file called name in the directory dir.
func sameFile(fd, dir int, name string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(fd, &a) == nil && unix.Fstatat(dir, name, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}

func openDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
