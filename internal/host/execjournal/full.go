package execjournal

import (
	"errors"
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
	return withDir(d.execDir(sandboxID), func(fd int) error {
		err := unix.Linkat(fd, RequestName(execID), fd, CancelName(execID), 0)
		if errors.Is(err, fs.ErrExist) {
			if cancelled, err := Cancelled(fd, execID, nonce); err != nil || cancelled {
				return err
			}
		}
		if err != nil {
			return full
		}
		return nil
	})
}

// closeWithoutSpace creates an empty journal. Errors: fs.ErrExist as for CreateExclusive.
func closeWithoutSpace(dirfd int, name string) error {
	if err := Touch(dirfd, name, unix.O_EXCL); err != nil {
		return err
	}
	return Sync(dirfd)
}
