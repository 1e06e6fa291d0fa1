package dockertest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// maxLinks is how many links a path may traverse, as in the kernel.
const maxLinks = 40

// node is one file of a tree. Nodes are never changed, only replaced.
type node struct {
	mode    fs.FileMode
	content []byte
	link    string
}

// tree is a filesystem: nodes by absolute path without links. The root always exists.
type tree map[string]node

// newTree returns the files that every image has.
func newTree() tree {
	passwd := node{mode: 0o644, content: []byte("nobody:x:65534:65534::/:/bin/sh\n")}
	return tree{"/etc": directory, "/etc/passwd": passwd, "/tmp": directory}
}

var directory = node{mode: fs.ModeDir | 0o755}

// at returns the node at a path without links.
func (t tree) at(name string) (node, bool) {
	if name == "/" {
		return directory, true
	}
	n, ok := t[name]
	return n, ok
}

// resolve returns name with the links in its directories resolved and, with last, a link at its end. The returned path
// may not exist; its directory does, unless ok is false.
func (t tree) resolve(name string, last bool) (place string, ok bool) {
	todo, done := path.Join("/", name), "/"
	for links := 0; links <= maxLinks; {
		todo = strings.TrimPrefix(todo, "/")
		if todo == "" {
			return done, true
		}
		first, rest, _ := strings.Cut(todo, "/")
		if dir, ok := t.at(done); !ok || !dir.mode.IsDir() {
			return "", false
		}
		next := path.Join(done, first)
		n, there := t.at(next)
		if !there || n.mode&fs.ModeSymlink == 0 || rest == "" && !last {
			done, todo = next, rest
			continue
		}
		links++
		if path.IsAbs(n.link) {
			done = "/"
		}
		todo, done = path.Join(done, n.link, rest), "/"
	}
	return "", false
}

// stat returns the node at name, and its resolved path.
func (t tree) stat(name string, followLast bool) (node, string, error) {
	place, ok := t.resolve(name, followLast)
	n, there := t.at(place)
	if !ok || !there {
		return node{}, "", fmt.Errorf("no such path: %s: %w", name, errdefs.ErrNotFound)
	}
	return n, place, nil
}

// mkdirs creates the directories above a path without links.
func (t tree) mkdirs(name string) error {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if n, there := t.at(dir); !there {
			t[dir] = directory
		} else if !n.mode.IsDir() {
			return fmt.Errorf("%s is not a directory: %w", dir, errdefs.ErrInternal)
		}
	}
	return nil
}

// unpack puts one entry of an archive below dir, a path without links. A global header is ignored.
func (t tree) unpack(dir string, h *tar.Header, content []byte) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	place := path.Join(dir, h.Name)
	if place != dir && !strings.HasPrefix(place, strings.TrimSuffix(dir, "/")+"/") {
		return fmt.Errorf("%s is outside of %s: %w", h.Name, dir, errdefs.ErrInternal)
	}
	if err := t.mkdirs(place); err != nil {
		return err
	}
	n := node{mode: h.FileInfo().Mode(), content: content, link: h.Linkname}
	if n.mode&fs.ModeSymlink != 0 {
		n.mode = fs.ModeSymlink | fs.ModePerm // as Linux has it
	}
	old, there := t.at(place)
	if there && old.mode.IsDir() != n.mode.IsDir() {
		return fmt.Errorf("%s: a directory and something else can't replace each other: %w", place, errdefs.ErrInternal)
	}
	if place != "/" {
		t[place] = n
	}
	return nil
}

// pack returns the archive of a file or a directory.
func (t tree) pack(name string) (*bytes.Buffer, error) {
	n, place, err := t.stat(name, strings.HasSuffix(name, "/."))
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() && strings.HasSuffix(name, "/.") {
		return nil, fmt.Errorf("%s is not a directory: %w", name, errdefs.ErrNotFound)
	}
	root := path.Base(name)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, p := range slices.Sorted(maps.Keys(t)) {
		rest, below := strings.CutPrefix(p, strings.TrimSuffix(place, "/")+"/")
		if p != place && !below {
			continue
		}
		n := t[p]
		h := &tar.Header{Name: root, Mode: int64(n.mode.Perm()), Size: int64(len(n.content)), Linkname: n.link, Typeflag: tar.TypeReg}
		if below {
			h.Name = root + "/" + rest
		}
		switch n.mode.Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
		case fs.ModeNamedPipe:
			h.Typeflag = tar.TypeFifo
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		_, _ = w.Write(n.content) // to memory
	}
	return &b, w.Close()
}
