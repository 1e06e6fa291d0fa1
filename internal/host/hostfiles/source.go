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

// ResolveParents replaces the symbolic links among the parent directories of each source, so that the spec that is recorded names the
// directories themselves; a link that is changed later changes nothing. It leaves the last element, which must not be a link, and paths
// that are invalid or do not exist, for the checks to refuse.
func ResolveParents(spec *agboxv1.CreateSpec) {
	for _, m := range spec.GetMounts() {
		m.Source = resolveParents(m.GetSource())
	}
	for _, c := range spec.GetCopies() {
		c.Source = resolveParents(c.GetSource())
	}
}

func resolveParents(path string) string {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return path
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return path
	}
	return filepath.Join(dir, filepath.Base(path))
}

// CheckMounts checks the sources of mounts on this host. It returns every broken one, in order.
func CheckMounts(mounts []*agboxv1.MountSpec) (broken validate.Errors) {
	for i, m := range mounts {
		addSource(&broken, fmt.Sprintf("mounts[%d].source", i), m.GetSource(), CheckSource(m.GetSource()))
	}
	return broken
}

// CheckCopies checks the sources of copies on this host and the syntax of their patterns. The contents of a source
// are checked when it is packed.
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

// CheckSource returns the reason why a host path cannot be mounted, as the rest of a sentence that starts with the path, or "".
// It refuses a path that does not exist, that is or contains a symbolic link (which could be redirected before the start
// of the container), or that is not a file, directory or socket.
func CheckSource(path string) (why string) {
	return refused(path, mountable, "file, directory or socket")
}

// Verify checks an accepted source again before each start of a container that uses it. Its error is always
// ErrFailedPrecondition: the path was valid, so it may become valid again, and a retry of the start makes sense. It
// does not report a link's target: the author of the link may want that path to be mounted.
func Verify(source string) error {
	why := CheckSource(source)
	if strings.HasPrefix(why, isLink) {
		why = isLink + " now, but was not at creation: restore the original path, or delete the sandbox"
	}
	if why != "" {
		return fmt.Errorf("host path %q %s: %w", source, why, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func mountable(mode uint32) bool { return fileOrDir(mode) || isType(mode, unix.S_IFSOCK) }

func fileOrDir(mode uint32) bool { return isType(mode, unix.S_IFREG) || isType(mode, unix.S_IFDIR) }

func isType(mode, want uint32) bool { return mode&unix.S_IFMT == want }

// refused returns the reason why path does not have an accepted type, or "".
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

// throughLink suggests the path without links, if it can be resolved.
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
	return fmt.Sprintf("cannot be inspected: %v", err)
}
