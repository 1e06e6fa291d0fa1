package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Open opens an absolute, clean path as a reference (O_PATH: its content can't be read through it), without following any
// symbolic link. Later renames and links don't change which file it refers to. Errors are *os.PathError; unix.ELOOP means a
// symbolic link.
func Open(path string) (*os.File, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("open %q: not an absolute path without %q, %q and doubled slashes: %w", path, ".", "..", errdefs.ErrInvalidArgument)
	}
	fd, err := openBeneath(path)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// A kernel before 5.6, or a seccomp filter that does not allow the call.
		fd, err = walkTo(path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openBeneath(path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC, // no O_NOFOLLOW: it would open a final link itself
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	return retried(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, &how) })
}

// walkTo does the same as openBeneath, one component at a time.
func walkTo(path string) (int, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil || path == "/" {
		return fd, err
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		next, err := openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		if err := notLink(next); err != nil {
			unix.Close(next)
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func notLink(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return nil
}

func openat(dir int, name string, flags int) (int, error) {
	return retried(func() (int, error) { return unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0) })
}

// retried repeats a call that was interrupted by a signal; the Go runtime sends itself some.
func retried(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
