package execjournal

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// removeBudget bounds one call of Remove; a container can leave millions of files.
const removeBudget = 500 * time.Millisecond

// UnfinishedError says that a call reached its time limit and files are left; call again. Removed counts the files that this call removed.
type UnfinishedError struct{ Removed int }

// Error implements error.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("removed %d files and directories, more are left: call again", e.Removed)
}

// Unavailable marks the class of the error for errdefs.
func (e *UnfinishedError) Unavailable() {}

// Remove removes everything of sandboxID: logs, journals, requests, out. The container must have been removed.
// Idempotent. It follows no symlink, and needs three descriptors for a tree of any depth. Errors: *UnfinishedError, which is
// unavailable, when the call's time limit was reached (call again to continue), or the I/O error.
func (d *Dir) Remove(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	d.forgetWatch(sandboxID)
	p := d.Paths(sandboxID)
	deadline := time.Now().Add(removeBudget)
	if err := removeTree(p.Logs, deadline); err != nil {
		return err
	}
	return removeTree(filepath.Dir(p.Ctl), deadline)
}

// removeTree removes path and everything in it, if path exists.
func removeTree(path string, deadline time.Time) error {
	err := inDir(path, func(fd int) (err error) {
		f := flattener{top: fd, deadline: deadline}
		for more := true; more; {
			if more, err = f.sweep(fd); err != nil {
				return fmt.Errorf("empty %s: %w", path, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// flattener removes a tree without recursion: it first moves directories below the first level up to the top.
type flattener struct {
	top      int
	removed  int
	deadline time.Time
}

// sweep removes the files of the directory fd and empties its subdirectories by one level; more means that fd was not empty,
// so that another sweep is due.
func (f *flattener) sweep(fd int) (more bool, err error) {
	names, err := readNames(fd)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if time.Now().After(f.deadline) {
			return true, &UnfinishedError{Removed: f.removed}
		}
		if err := f.remove(fd, name); err != nil {
			return true, err
		}
	}
	return len(names) > 0, nil
}

// remove removes one entry of fd. A directory that is not empty is emptied (at the top) or moved to the top (below it).
func (f *flattener) remove(fd int, name string) error {
	err := unix.Unlinkat(fd, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		f.removed++
		return nil
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("remove %q: %w", name, err)
	case fd == f.top:
		return f.enter(name)
	}
	return f.moveUp(fd, name)
}

func (f *flattener) enter(name string) error {
	sub, err := unix.Openat(f.top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	defer unix.Close(sub)
	_, err = f.sweep(sub)
	return err
}

// moveUp moves a directory to the top, under a random name: a container cannot have taken it on purpose.
func (f *flattener) moveUp(fd int, name string) error {
	return os.NewSyscallError("rename", unix.Renameat2(fd, name, f.top, rand.Text(), unix.RENAME_NOREPLACE))
}

// readNames lists at most 4096 entries from the start of the directory, so that a huge one costs no memory.
func readNames(fd int) (names []string, err error) {
	for name, err := range entries(fd) {
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		if names = append(names, name); len(names) == 4096 {
			break
		}
	}
	return names, nil
}

// Prepared reports whether anything exists that RemoveInputs removes, also what a crash left partly created or removed.
func (d *Dir) Prepared(sandboxID string) (bool, error) {
	run := filepath.Dir(d.Paths(sandboxID).Ctl)
	info, err := os.Lstat(run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("stat the run directory: %w", err)
	case info.Mode().IsRegular():
		return false, fmt.Errorf("the run directory %s is a file", run)
	}
	return true, nil
}

// RemoveInputs removes ctl and out, and keeps logs. The container must have been removed. Idempotent. Errors: as Remove.
func (d *Dir) RemoveInputs(sandboxID string) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	return removeTree(filepath.Dir(d.Paths(sandboxID).Ctl), time.Now().Add(removeBudget))
}

// SandboxDir is one directory of a sandbox on the host.
type SandboxDir struct {
	Path string
	// SandboxID is the sandbox whose logs the directory contains. It is empty for a directory below runRoot, where only the
	// hash RunName is known.
	SandboxID string
}

// RunName is the name of a sandbox's directory below runRoot.
func RunName(sandboxID string) string {
	sum := sha256.Sum256([]byte(sandboxID))
	return hex.EncodeToString(sum[:8])
}

// isRunName matches the names that RunName returns.
func isRunName(name string) bool { return len(name) == 16 && consistsOf(name, "0123456789abcdef") }

// Dirs lists the directories below both roots with names of sandboxes, live or not, sorted by path. All other entries are
// left out, including links. A missing root has none.
func (d *Dir) Dirs() ([]SandboxDir, error) {
	logs, err := directories(d.outputRoot, ValidExecID)
	if err != nil {
		return nil, err
	}
	for i := range logs {
		logs[i].SandboxID = filepath.Base(logs[i].Path)
	}
	runs, err := directories(d.runRoot, isRunName)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(logs, runs)
	slices.SortFunc(all, func(a, b SandboxDir) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// RemoveDir removes one of Dirs with its content, as Remove does. Idempotent. Errors: invalid argument for any
// other path; otherwise as Remove.
func (d *Dir) RemoveDir(path string) error {
	root, name := filepath.Dir(filepath.Clean(path)), filepath.Base(path)
	if root == filepath.Clean(d.outputRoot) && ValidExecID(name) || root == filepath.Clean(d.runRoot) && isRunName(name) {
		return removeTree(path, time.Now().Add(removeBudget))
	}
	return invalidf("%s is not a directory of a sandbox", path)
}

// directories returns the real directories in root with names for which fits is true.
func directories(root string, fits func(string) bool) (dirs []SandboxDir, err error) {
	all, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	for _, e := range all {
		if e.IsDir() && fits(e.Name()) { // the entry's own type, so a link does not match
			dirs = append(dirs, SandboxDir{Path: filepath.Join(root, e.Name())})
		}
	}
	return dirs, nil
}
