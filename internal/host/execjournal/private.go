package execjournal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Modes of files in the log directory. Nothing there is of use to a command but the output of its own user's execs.
const (
	// PrivateMode is that of locks, journals and temporary files: their owner alone may open them.
	PrivateMode = 0o600
	// LogMode is that of logs: the group of the exec's user reads them inside.
	LogMode = 0o640
	// openMode is the mode of a file that can't be given to its reader.
	openMode = 0o644
)

// Entrust gives fd, a new file in the directory dirfd, to the owner of the directory: root, or the daemon's user where that is
// another one, who could not read it otherwise. group is the file's group, or -1 for the one that it has. What we may not
// give away becomes readable to everybody inside instead: the daemon must be able to read it.
//
// The mode comes first, and is set only where it differs: PID 1 of a hardened sandbox may not change that of others' files.
func Entrust(dirfd, fd int, group int, mode uint32) error {
	var dir, file unix.Stat_t
	if err := errors.Join(unix.Fstat(dirfd, &dir), unix.Fstat(fd, &file)); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if file.Mode&0o7777 != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			return os.NewSyscallError("fchmod", err)
		}
	}
	if group == -1 {
		group = int(file.Gid)
	}
	if file.Uid == dir.Uid && int(file.Gid) == group {
		return nil
	}
	if err := unix.Fchown(fd, int(dir.Uid), group); err != nil {
		return os.NewSyscallError("fchmod", unix.Fchmod(fd, openMode))
	}
	return nil
}
