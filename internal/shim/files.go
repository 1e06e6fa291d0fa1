package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

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
	return openOwn(logs, name, unix.O_WRONLY|unix.O_APPEND)
}

// openOwn opens or creates a file that only root may access. It returns ErrMalformed if name is not a regular file.
func openOwn(logs int, name string, flags int) (int, error) {
	flags |= unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
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

// shareLog lets the user that runs the command read its log, unless other users are in the same group: only root may then read it.
func shareLog(dir, log int, who passwd.Identity) error {
	group, mode := -1, uint32(execjournal.PrivateMode)
	if who.OwnGroup {
		group, mode = int(who.GID), execjournal.LogMode
	}
	if err := execjournal.Entrust(dir, log, group, mode); err != nil {
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

// lock acquires the lock of an exec and returns its descriptor. The file is locked before it is linked to its name, and only root may open
// it, so no command can lock it first. It returns EWOULDBLOCK if another process holds the lock.
func (p *initProcess) lock(id string) (int, error) {
	temp, name := execjournal.TempName(id, "lock"), execjournal.LockName(id)
	fd, err := newLock(p.logs, temp)
	if err != nil {
		return -1, err
	}
	err = unix.Linkat(p.logs, temp, p.logs, name, 0)
	if errors.Is(err, fs.ErrExist) {
		var old int
		if old, err = oldLock(p.logs, name); old >= 0 {
			unix.Close(fd)
			fd = old
		} else if err == nil {
			err = unix.Renameat(p.logs, temp, p.logs, name)
		}
	}
	_ = unix.Unlinkat(p.logs, temp, 0) // fails after a rename
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// newLock creates a locked file.
func newLock(dir int, temp string) (int, error) {
	fd, err := execjournal.CreateTemp(dir, temp, execjournal.PrivateMode)
	if err != nil {
		return -1, err
	}
	if err = execjournal.Flock(fd, unix.LOCK_EX); err == nil { // before agboxd's user gets access and the file has its final name
		err = execjournal.Entrust(dir, fd, -1, execjournal.PrivateMode)
	}
	if err != nil {
		unix.Close(fd)
		_ = unix.Unlinkat(dir, temp, 0)
		return -1, err
	}
	return fd, nil
}

// oldLock acquires the lock file that an earlier supervisor of the exec left; that supervisor had started no command. It returns -1 and no
// error if the file cannot serve as the lock: it is gone, it is not a regular file, or other users may open it, so that its lock proves
// nothing.
func oldLock(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	if !private(dir, fd) {
		unix.Close(fd)
		return -1, nil
	}
	if err = execjournal.Flock(fd, unix.LOCK_EX); err == nil && !sameFile(fd, dir, name) {
		err = unix.EWOULDBLOCK // another process replaced the file before flock
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// private reports whether fd is a regular file that only its owner may open, and the owner is this process's user or the directory's owner.
func private(dir, fd int) bool {
	var d, f unix.Stat_t
	if unix.Fstat(dir, &d) != nil || unix.Fstat(fd, &f) != nil {
		return false
	}
	ours := f.Uid == d.Uid || int(f.Uid) == os.Geteuid()
	return ours && f.Mode&unix.S_IFMT == unix.S_IFREG && f.Mode&0o077 == 0
}
