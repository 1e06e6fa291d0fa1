package execjournal

import (
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
func Entrust(dirfd, fd int, group int, mode uint32) error {
	var dir unix.Stat_t
	if err := unix.Fstat(dirfd, &dir); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	owner := int(dir.Uid)
	if owner == os.Geteuid() {
		owner = -1
	}
	if owner != -1 || group != -1 {
		if err := unix.Fchown(fd, owner, group); err != nil {
			mode = openMode
		}
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
}
