package hostfiles

import (
	"archive/tar"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links the kernel follows in a path.
const maxLinks = 40

// link packs a symbolic link of the directory dir, which is dirRel below the source.
func (p *packer) link(dir int, name, dirRel, rel string, st *unix.Stat_t) error {
	text, err := p.readlink(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EINVAL) {
		return changed(quoted(rel), errors.New("it is no symbolic link any more"))
	}
	if err != nil {
		return unreadableEntry(rel, err)
	}
	inside, ok := p.relink(elements(dirRel), text)
	if !ok {
		return refuse(rel, fmt.Sprintf("is a symbolic link to %s, which leads out of the copied directory", quoted(text)))
	}
	return p.write(&tar.Header{Typeflag: tar.TypeSymlink, Name: p.prefix + rel, Linkname: inside, Mode: 0o777}, st)
}

// relink returns what a link in the directory dir says in the copy; !ok if it leads out of the tree.
func (p *packer) relink(dir []string, text string) (relative string, ok bool) {
	if !strings.HasPrefix(text, "/") {
		return text, p.staysInside(dir, text)
	}
	rest, ok := p.inTree(text)
	return strings.Repeat("../", len(dir)) + rest, ok && p.staysInside(nil, rest)
}

// inTree returns an absolute path as one that starts at the source. The tree may be known by another path, through a link.
func (p *packer) inTree(path string) (rest string, ok bool) {
	if rest, ok = p.belowSource(path); ok {
		return rest, true
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	return p.belowSource(resolved)
}

// belowSource is inTree by the letters of the path.
func (p *packer) belowSource(path string) (rest string, ok bool) {
	top := strings.TrimSuffix(p.copy.Source, "/")
	rest, ok = strings.CutPrefix(path, top)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	if rest = strings.TrimLeft(rest, "/"); rest == "" {
		rest = "."
	}
	return rest, true
}

// staysInside tells whether a path that starts in the directory at never leaves the tree. Links on its way are judged as
// entries of their own, so one matters here only if the path goes up again behind it: then its parent is not what the
// letters say.
func (p *packer) staysInside(at []string, path string) bool {
	at, todo := slices.Clone(at), elements(path)
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
		case "..":
			if len(at) == 0 {
				return false
			}
			at = at[:len(at)-1]
		default:
			at = append(at, name)
			text, isLink := "", false
			if slices.Contains(todo, "..") {
				text, isLink = p.linkAt(at)
			}
			if !isLink {
				continue
			}
			if links++; links > maxLinks {
				return true // leads nowhere
			}
			from, next, ok := p.follow(at[:len(at)-1], text)
			if !ok {
				return false
			}
			at, todo = from, append(next, todo...)
		}
	}
	return true
}

// follow returns where the path of a link in the directory dir starts, and its elements; !ok if it starts outside.
func (p *packer) follow(dir []string, text string) (from, path []string, ok bool) {
	if !strings.HasPrefix(text, "/") {
		return dir, elements(text), true
	}
	rest, ok := p.inTree(text)
	return nil, elements(rest), ok
}

// linkAt reads the link at a path below the source that has no link above its end.
func (p *packer) linkAt(at []string) (text string, isLink bool) {
	fd, err := openat(p.root, ".", unix.O_PATH)
	for _, name := range at[:len(at)-1] {
		if err != nil {
			return "", false
		}
		var next int
		next, err = openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY)
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	text, err = p.readlink(fd, at[len(at)-1])
	return text, err == nil
}

// readlink uses the buffer for contents, which is larger than a link can be.
func (p *packer) readlink(dir int, name string) (string, error) {
	n, err := retried(func() (int, error) { return unix.Readlinkat(dir, name, p.buf) })
	if err != nil {
		return "", err
	}
	return string(p.buf[:n]), nil
}

func elements(rel string) []string {
	if rel == "" {
		return nil
	}
	return strings.Split(rel, "/")
}
