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

// link packs a symbolic link in the directory dir, whose path below the source is dirRel.
func (p *packer) link(dir int, name, dirRel, rel string, st *unix.Stat_t) error {
	text, err := p.readlink(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EINVAL) {
		return changed(quoted(rel), errors.New("it is no longer a symbolic link"))
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

// relink returns the target for a link in the directory dir of the copy; !ok if it leads out of the tree.
func (p *packer) relink(dir []string, text string) (relative string, ok bool) {
	if !strings.HasPrefix(text, "/") {
		return text, p.staysInside(dir, text)
	}
	rest, ok := p.inTree(text)
	return strings.Repeat("../", len(dir)) + rest, ok && p.staysInside(nil, rest)
}

// inTree converts an absolute path to one relative to the source. The path may lead to the tree through a link.
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

// belowSource is inTree without resolving links.
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

// staysInside reports whether a path that starts in the directory at never leaves the tree. Links on the way are judged as
// entries of their own; here one matters only if ".." follows it, since its parent is then not the lexical one.
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
			if !slices.Contains(todo, "..") {
				continue
			}
			text, err := p.root.Readlink(strings.Join(at, "/")) // no parent in that path is a link
			if err != nil {
				continue
			}
			if links++; links > maxLinks {
				return true // too many links: unresolvable
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

// follow returns the start and the elements of the path of a link in the directory dir; !ok if it starts outside.
func (p *packer) follow(dir []string, text string) (from, path []string, ok bool) {
	if !strings.HasPrefix(text, "/") {
		return dir, elements(text), true
	}
	rest, ok := p.inTree(text)
	return nil, elements(rest), ok
}

// readlink uses the copy buffer, which is larger than any link.
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
