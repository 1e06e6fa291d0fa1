package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// CheckMounts looks at the sources of mounts on this host. It returns every broken one, in order.
func CheckMounts(mounts []*agboxv1.MountSpec) (broken validate.Errors) {
	for i, m := range mounts {
		addSource(&broken, fmt.Sprintf("mounts[%d].source", i), m.GetSource(), CheckSource(m.GetSource()))
	}
	return broken
}

// CheckCopies looks at the sources of copies on this host and at the syntax of their patterns. What is inside a source
// is judged when it is packed.
func CheckCopies(copies []*agboxv1.CopySpec) (broken validate.Errors) {
	for i, c := range copies {
		addSource(&broken, fmt.Sprintf("copies[%d].source", i), c.GetSource(), refused(c.GetSource(), fileOrDir, "file or directory"))
		for j, p := range c.GetExcludePatterns() {
			if _, _, err := parseRule(p); err != nil {
				field := fmt.Sprintf("copies[%d].exclude_patterns[%d]", i, j)
				broken = append(broken, validate.Error{Field: field, Message: fmt.Sprintf("%s %q %v", field, p, err)})
			}
		}
	}
	return broken
}

func addSource(broken *validate.Errors, field, source, why string) {
	if why != "" {
		*broken = append(*broken, validate.Error{Field: field, Message: fmt.Sprintf("%s %q %s", field, source, why)})
	}
}

// CheckSource says why a host path cannot be mounted, as the end of a sentence that begins with the path, or returns "".
// A path is refused that does not exist, that is or goes through a symbolic link (which could be pointed elsewhere between
// now and the start of the container), and what is not a file, directory or socket.
func CheckSource(path string) (why string) {
	return refused(path, mountable, "file, directory or socket")
}

// Verify checks a source that was accepted once, before each start of a container that uses it. Its error is
// ErrFailedPrecondition, whatever is wrong: the path was good, so it may be again, and the start is worth another try. It
// does not say where a link leads: whoever put it there may want that place to be mounted.
func Verify(source string) error {
	why := CheckSource(source)
	if strings.HasPrefix(why, isLink) {
		why = isLink + " now, which it was not before: put back what was there, or delete the sandbox"
	}
	if why != "" {
		return fmt.Errorf("host path %q %s: %w", source, why, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func mountable(mode uint32) bool { return fileOrDir(mode) || isType(mode, unix.S_IFSOCK) }

func fileOrDir(mode uint32) bool { return isType(mode, unix.S_IFREG) || isType(mode, unix.S_IFDIR) }

func isType(mode, want uint32) bool { return mode&unix.S_IFMT == want }

// refused says why path is not one of what accept takes, or returns "".
func refused(path string, accept func(mode uint32) bool, kinds string) string {
	f, err := Open(path)
	if errors.Is(err, unix.ELOOP) {
		return throughLink(path)
	}
	if err != nil {
		return unreadable(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return unreadable(err)
	}
	if !accept(st.Mode) {
		return "is not a " + kinds
	}
	return ""
}

const isLink = "is, or goes through, a symbolic link"

// throughLink names the way out: the path without links, where there is one.
func throughLink(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return unreadable(err)
	}
	return fmt.Sprintf("%s; write %q", isLink, resolved)
}

func unreadable(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist on this host"
	}
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Sprintf("cannot be looked at: %v", err)
}
