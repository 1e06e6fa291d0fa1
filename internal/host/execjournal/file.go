package execjournal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// readTries is how often ReadFile reads a file whose name goes to another one meanwhile. A journal's does so once.
const readTries = 10

// ReadFile reads the regular file name of the directory dirfd, at most limit bytes. It follows no symlink, opens no
// device and waits for no FIFO. What it returns is from a file that had the name before and after: a supervisor overwrites a file that was a
// journal before. Errors: fs.ErrNotExist; ErrMalformed for what is not such a file; else the I/O error; ErrUnavailable if the name goes to another
// file each time.
func ReadFile(dirfd int, name string, limit int64) ([]byte, error) {
	for range readTries {
		f, err := openRegular(dirfd, name)
		if err != nil {
			return nil, err
		}
		data, err := readWhole(f, name, limit)
		kept, keptErr := hasName(f, dirfd, name)
		f.Close()
		if kept || keptErr != nil {
			return data, errors.Join(err, keptErr)
		}
	}
	return nil, unavailablef("%s is another file each time that it is read", name)
}

func readWhole(f *os.File, name string, limit int64) ([]byte, error) {
	size, err := sizeOf(f)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrMalformed, name, limit)
	}
	return readAt(f, size, 0)
}

// hasName reports whether name is an entry of the directory dirfd for f.
func hasName(f *os.File, dirfd int, name string) (bool, error) {
	var is, named unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		return false, fmt.Errorf("stat %s: %w", name, err)
	}
	err := unix.Fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("stat %s: %w", name, err)
	}
	return err == nil && is.Dev == named.Dev && is.Ino == named.Ino, nil
}

// openRegular opens name for reading if it is a regular file: it checks the type through an O_PATH descriptor, which has no
// side effects, and then opens that very inode. A plain open would already trigger a device that the container created with
// mknod.
func openRegular(dirfd int, name string) (*os.File, error) {
	h, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(h)
	var st unix.Stat_t
	if err := unix.Fstat(h, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrMalformed, name)
	}
	fd, err := unix.Open(pathOf(h), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: %s may not be read", ErrMalformed, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// pathOf returns a path to the inode that fd refers to, without another lookup of its name.
func pathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Exists reports whether the directory dirfd has an entry name, of any type.
func Exists(dirfd int, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stat %s: %w", name, err)
	}
	return true, nil
}

// CreateExclusive creates name with data, readable by its directory's owner; durable means that file and entry are on disk when it returns.
// The first creator wins: fs.ErrExist means that name exists. Unlike O_EXCL, link(2) ensures that name never has partial content.
func CreateExclusive(dirfd int, temp, name string, data []byte, durable bool) error {
	if err := writeTemp(dirfd, temp, data, PrivateMode, durable); err != nil {
		return err
	}
	defer discard(dirfd, temp)
	if err := unix.Linkat(dirfd, temp, dirfd, name, 0); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if durable {
		return Sync(dirfd)
	}
	return nil
}

// Touch creates an empty file, unless it exists. With flag unix.O_EXCL an existing file is fs.ErrExist.
func Touch(dirfd int, name string, flag int) error {
	fd, err := unix.Openat(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flag, PrivateMode)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return unix.Close(fd)
}

// Replace atomically replaces name with data; durable means that it is on disk before Replace returns. The file belongs to its
// directory's owner.
func Replace(dirfd int, temp, name string, data []byte, mode uint32, durable bool) error {
	if err := writeTemp(dirfd, temp, data, mode, durable); err != nil {
		return err
	}
	if err := unix.Renameat(dirfd, temp, dirfd, name); err != nil {
		discard(dirfd, temp)
		return fmt.Errorf("rename %s: %w", name, err)
	}
	if durable {
		return Sync(dirfd)
	}
	return nil
}

// Sync flushes a file or a directory.
func Sync(fd int) error {
	for {
		err := unix.Fsync(fd)
		if err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fsync", err)
		}
	}
}

// Flock is flock(2) without waiting: EWOULDBLOCK if another process holds the lock.
func Flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// CreateTemp creates and opens a new file, and replaces the leftover of a killed writer. Each temporary name has one writer at a time. The
// file belongs to this process's user until Entrust.
func CreateTemp(dirfd int, temp string, mode uint32) (fd int, err error) {
	if err := unix.Unlinkat(dirfd, temp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1, fmt.Errorf("remove old %s: %w", temp, err)
	}
	fd, err = unix.Openat(dirfd, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return -1, fmt.Errorf("create %s: %w", temp, err)
	}
	return fd, nil
}

func writeTemp(dirfd int, temp string, data []byte, mode uint32, durable bool) error {
	fd, err := CreateTemp(dirfd, temp, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	defer f.Close()
	err = Entrust(dirfd, fd, -1, mode)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err != nil {
		discard(dirfd, temp)
		return fmt.Errorf("write %s: %w", temp, err)
	}
	return nil
}

// discard removes a temporary file. If that fails, the next writer replaces it, or it is removed with the directory.
func discard(dirfd int, temp string) { _ = unix.Unlinkat(dirfd, temp, 0) }

func sizeOf(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// readAt reads up to size bytes at offset; fewer only where the file ends.
func readAt(f *os.File, size, offset int64) ([]byte, error) {
	data := make([]byte, size)
	n, err := f.ReadAt(data, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// Modes of files in the log directory. Commands need nothing there but the output of their own user's execs.
const (
	// PrivateMode is the mode of locks, journals and temporary files: only their owner may open them.
	PrivateMode = 0o600
	// LogMode is the mode of logs of a user who has a group of their own, and may read them in the container. Logs of other users have
	// PrivateMode. On the host, only the owner of the log directory can reach either.
	LogMode = 0o640
	// openMode is the mode of a file whose owner can't be changed to the daemon's user.
	openMode = 0o644
)

// Entrust changes the owner of fd, a new file in the directory dirfd, to the owner of the directory: root, or the daemon's
// user, who could not read it otherwise. group is the file's group, or -1 to keep it. If the owner can't be changed, the file becomes
// readable for all users of the container instead: the daemon must be able to read it. If only the group can't, its owner alone may read it.
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
		mode = openMode
		if file.Uid == dir.Uid {
			mode = PrivateMode
		}
		return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
	}
	return nil
}
