package recordfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// openDir opens a sandbox's directory, not a link to one.
func openDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// makeDir makes a sandbox's directory as execjournal does, and the root if need be; nothing is synced.
func makeDir(path string) error {
	err := unix.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		err = unix.Mkdir(path, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// openFile opens name of the directory dirfd, a regular file and no link, and returns its size.
func openFile(dirfd int, name string, flags int) (f *os.File, size int64, err error) {
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dirfd, name, flags, 0o600)
	if err != nil {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, 0, fmt.Errorf("%s is not a regular file: %w", name, errdefs.ErrDataLoss)
	}
	return os.NewFile(uintptr(fd), name), st.Size, nil
}

// createTemp makes a new file; what a killed process left under its name goes.
func createTemp(dirfd int, name string) (*os.File, error) {
	if err := remove(dirfd, name); err != nil {
		return nil, err
	}
	f, _, err := openFile(dirfd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	return f, err
}

func remove(dirfd int, name string) error {
	if err := unix.Unlinkat(dirfd, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

func rename(dirfd int, from, to string) error {
	if err := unix.Renameat(dirfd, from, dirfd, to); err != nil {
		return &fs.PathError{Op: "rename", Path: from, Err: err}
	}
	return nil
}

// syncDir syncs an open directory.
func syncDir(dirfd int) error {
	for {
		err := unix.Fsync(dirfd)
		if err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fsync", err)
		}
	}
}

// isGone reports whether err only says that somebody has removed the file or its directory.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// section reads the bytes of f from one offset to another.
func section(f io.ReaderAt, from, to int64) *io.SectionReader {
	return io.NewSectionReader(f, from, to-from)
}
