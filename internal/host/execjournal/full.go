package execjournal

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// On a full disk an exec can still be cancelled and closed: both have forms that need a directory entry, and at most an inode,
// but no block.
//
//   - A Cancel may be a second link to the exec's Request, which has the same nonce and decodes as a Cancel.
//   - A closed Journal may be an empty file.

// isFull reports whether err means that the disk or quota is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// cancelWithoutSpace links the request of an exec to its cancel. full is the error of the ordinary write, returned when the
// request does not exist.
func (d *Dir) cancelWithoutSpace(sandboxID, execID, nonce string, full error) error {
	fd, err := openDir(d.execDir(sandboxID))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Linkat(fd, RequestName(execID), fd, CancelName(execID), 0)
	if errors.Is(err, fs.ErrExist) {
		if cancelled, err := Cancelled(fd, execID, nonce); err != nil || cancelled {
			return err
		}
		return full
	}
	if err != nil {
		return full
	}
	return nil
}

// closeWithoutSpace creates an empty journal. Errors: fs.ErrExist as for CreateExclusive.
func closeWithoutSpace(dirfd int, name string) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dirfd, name, flags, PrivateMode)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	unix.Close(fd)
	return Sync(dirfd)
}
