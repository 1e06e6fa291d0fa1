package execjournal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckRoot checks, without changing anything, that agboxd may keep a sandbox's files below root: an absolute path whose last part is a
// directory of agboxd's user and no symbolic link, and which no other user can lead elsewhere. A missing root is safe if it can be made.
// Errors: invalid argument, failed precondition, and those of the file system.
func CheckRoot(root string) error {
	if !filepath.IsAbs(root) {
		return invalidf("%s is not an absolute path", root)
	}
	var st unix.Stat_t
	switch err := unix.Lstat(root, &st); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR): // checkParents says which part is no directory
	case err != nil:
		return &fs.PathError{Op: "stat", Path: root, Err: err}
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return refusedf("%s is a symbolic link; name the directory that it leads to", root)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return refusedf("%s is not a directory", root)
	case int(st.Uid) != os.Geteuid():
		return refusedf("%s belongs to user %d, not to agboxd's user %d: %w", root, st.Uid, os.Geteuid(), errOwner)
	}
	if err := checkParents(filepath.Dir(filepath.Clean(root))); err != nil {
		return err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(root)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return checkParents(parent)
}

// checkParents checks each part of an absolute path that exists: only root and agboxd's user may decide where a symbolic link leads, and
// who can write to a directory without a sticky bit can replace what is below it.
func checkParents(path string) error {
	at := "/"
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		at = filepath.Join(at, name)
		var st unix.Stat_t
		err := unix.Lstat(at, &st)
		switch kind := st.Mode & unix.S_IFMT; {
		case errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return &fs.PathError{Op: "stat", Path: at, Err: err}
		case kind == unix.S_IFLNK && st.Uid != 0 && int(st.Uid) != os.Geteuid():
			return refusedf("%s above it is a symbolic link of user %d, who can lead it elsewhere: %w", at, st.Uid, errOwner)
		case kind == unix.S_IFLNK:
			if _, err := os.Stat(at); err != nil {
				return refusedf("%s above it is a symbolic link that leads nowhere: %w", at, err)
			}
		case kind != unix.S_IFDIR:
			return refusedf("%s above it is not a directory", at)
		case st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0:
			return refusedf("every user can write to %s above it and replace it: remove that permission (chmod o-w %s) or configure another directory", at, at)
		}
	}
	return nil
}
