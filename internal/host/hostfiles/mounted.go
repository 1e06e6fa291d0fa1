package hostfiles

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Mounted is one bind mount of a container: absolute paths on the host and in the container.
type Mounted struct{ Source, Target string }

// CheckMounted verifies that a container whose PID 1 is pid on this host has, at each target, the very file or directory
// that its source names without following a link. The engine resolves sources by path, and another process may replace a part of
// the path meanwhile; so nothing of the sandbox may run before this check.
//
// known is a mount whose source no other user can replace; links in its path are followed. If even known does not match, the
// container's files are not visible from here: the caller is not root, or the runtime runs containers in a virtual machine; then
// seen is false and there is no verdict. Errors: ErrFailedPrecondition for a source that was removed or became a link; ErrAborted
// for a mount that differs from its source; ErrUnavailable when the container has exited.
func CheckMounted(pid int, known Mounted, mounts []Mounted) (seen bool, err error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("open the root directory of the container's PID 1: %w: %w", err, errdefs.ErrUnavailable)
	}
	defer unix.Close(root)
	source, err := os.OpenFile(known.Source, unix.O_PATH, 0)
	if err != nil {
		return false, fmt.Errorf("open the source of agboxd's own mount: %w: %w", err, errdefs.ErrUnavailable)
	}
	defer source.Close()
	if same, err := known.is(root, source); err != nil || !same {
		return false, err
	}
	for _, m := range mounts {
		same, err := m.isItsSource(root)
		if err != nil {
			return true, err
		}
		if !same {
			return true, fmt.Errorf("host path %q was replaced while the container was started; the mount shows another file: %w", m.Source, errdefs.ErrAborted)
		}
	}
	return true, nil
}

// isItsSource reports whether the target below root is the file that the source names without a link.
func (m Mounted) isItsSource(root int) (bool, error) {
	source, err := Open(m.Source)
	if err != nil {
		return false, fmt.Errorf("host path %q: %w: %w", m.Source, err, errdefs.ErrFailedPrecondition)
	}
	defer source.Close()
	return m.is(root, source)
}

// is reports whether the target below root is source.
func (m Mounted) is(root int, source *os.File) (bool, error) {
	target, err := retried(func() (int, error) {
		return unix.Openat2(root, m.Target, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
		})
	})
	if err != nil {
		return false, nil // the target does not exist
	}
	defer unix.Close(target)
	var have, want unix.Stat_t
	if err := errors.Join(unix.Fstat(target, &have), unix.Fstat(int(source.Fd()), &want)); err != nil {
		return false, fmt.Errorf("compare %q: %w: %w", m.Source, err, errdefs.ErrUnavailable)
	}
	return have.Dev == want.Dev && have.Ino == want.Ino, nil
}
