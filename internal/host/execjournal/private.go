package execjournal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Modes of files in the log directory. Commands need nothing there but the output of their own user's execs.
const (
	// PrivateMode is the mode of locks, journals and temporary files: only their owner may open them.
	PrivateMode = 0o600
	// LogMode is the mode of logs: the group of the exec's user may read them in the container.
	LogMode = 0o640
	// openMode is the mode of a file whose owner can't be changed to its reader.
	openMode = 0o644
)

// Entrust changes the owner of fd, a new file in the directory dirfd, to the owner of the directory: root, or the daemon's
// user, who could not read it otherwise. group is the file's group, or -1 to keep it. A file that may not be given away
// becomes readable for all users of the container instead: the daemon must be able to read it.
//
// The mode is set first, and only if it differs: PID 1 of a hardened sandbox may not change the mode of other users' files.
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
