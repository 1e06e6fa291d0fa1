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

// CheckMounted makes sure that a container whose PID 1 is pid on this host sees, at each target, the very file or directory
// that its source names without following a link. The engine looks sources up by path, and somebody may swap a part of the path
// at that moment; nothing of the sandbox's own must have run before this was checked.
//
// known is a mount whose source nobody else can swap; links on its way are followed. If it is not seen either, the
// container's files can't be seen from here: the caller is not root, or the runtime keeps them in a machine of its own; then
// seen is false and nothing is said. Errors:
// ErrFailedPrecondition for a source that has become a link or is gone; ErrAborted for a mount that is something else than
// its source; ErrUnavailable when the container has ended.
func CheckMounted(pid int, known Mounted, mounts []Mounted) (seen bool, err error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look into the container: %w: %w", err, errdefs.ErrUnavailable)
	}
	defer unix.Close(root)
	source, err := os.OpenFile(known.Source, unix.O_PATH, 0)
	if err != nil {
		return false, fmt.Errorf("look at our own mount: %w: %w", err, errdefs.ErrUnavailable)
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
			return true, fmt.Errorf("host path %q was swapped for something else while the container was started: %w", m.Source, errdefs.ErrAborted)
		}
	}
	return true, nil
}

// isItsSource reports whether the target below root is what the source names without a link.
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
		return false, nil // it is not even there
	}
	defer unix.Close(target)
	var have, want unix.Stat_t
	if err := errors.Join(unix.Fstat(target, &have), unix.Fstat(int(source.Fd()), &want)); err != nil {
		return false, fmt.Errorf("compare %q: %w: %w", m.Source, err, errdefs.ErrUnavailable)
	}
	return have.Dev == want.Dev && have.Ino == want.Ino, nil
}
