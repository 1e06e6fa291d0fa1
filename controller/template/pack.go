package template

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Bounds of the unpacked files of a build.
const (
	maxUnpacked = 4 << 30
	maxEntries  = 200_000
	// maxRead bounds what the archives of a build decompress to, with headers and what follows the entries.
	maxRead = maxUnpacked + 1<<30
)

var errPacked = fmt.Errorf("the files of a build have more than %d GiB or more than %d entries: %w", maxUnpacked>>30, maxEntries, errdefs.ErrInvalidArgument)

// pack writes the context of a build: the Dockerfile, and the archives of its COPY steps, each below a directory of its own. Nothing that an
// archive names is outside of that directory or is reached through a link, so no archive changes another or the Dockerfile. Owners are
// root; times, devices and extended attributes are left out. Errors: ErrInvalidArgument for an archive that does not keep to this.
func pack(w io.Writer, r *recipe, open func(hash string) (io.ReadCloser, error)) error {
	p := &packer{out: tar.NewWriter(w), size: maxUnpacked, entries: maxEntries, read: maxRead}
	text := strings.Join(r.lines, "\n") + "\n"
	if err := p.out.WriteHeader(&tar.Header{Name: "Dockerfile", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return err
	}
	if _, err := io.WriteString(p.out, text); err != nil {
		return err
	}
	for _, s := range r.sources {
		if err := p.source(s, open); err != nil {
			return fmt.Errorf("the files of step %d: %w", s.step+1, err)
		}
	}
	return p.out.Close()
}

type packer struct {
	out     *tar.Writer
	size    int64 // left
	entries int   // left
	read    int64 // left
	kinds   map[string]byte
}

func (p *packer) source(s source, open func(hash string) (io.ReadCloser, error)) error {
	f, err := open(s.hash)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReader(f)
	var archive io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if archive, err = gzip.NewReader(in); err != nil {
			return broken(err)
		}
	}
	p.kinds = map[string]byte{}
	for t := tar.NewReader(&bounded{archive, &p.read}); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		if err := p.entry(s, h, t); err != nil {
			return err
		}
	}
}

// bounded is a reader that fails when nothing is left.
type bounded struct {
	r    io.Reader
	left *int64
}

// Read implements io.Reader.
func (b *bounded) Read(data []byte) (int, error) {
	if *b.left <= 0 {
		return 0, errPacked
	}
	n, err := b.r.Read(data[:min(int64(len(data)), *b.left)])
	*b.left -= int64(n)
	return n, err
}

func broken(err error) error {
	if errors.Is(err, errPacked) {
		return errPacked
	}
	return fmt.Errorf("the archive is broken: %w: %w", err, errdefs.ErrInvalidArgument)
}

func (p *packer) entry(s source, h *tar.Header, content io.Reader) error {
	name, err := inside(h.Name)
	if err != nil || strings.ContainsRune(h.Name, 0) {
		return fmt.Errorf("%q leads out of the archive: %w", h.Name, errdefs.ErrInvalidArgument)
	}
	if p.entries--; p.entries < 0 {
		return errPacked
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if kind, known := p.kinds[dir]; known && kind != tar.TypeDir {
			return fmt.Errorf("%q is below %q, which is no directory: %w", h.Name, dir, errdefs.ErrInvalidArgument)
		}
		p.kinds[dir] = tar.TypeDir
	}
	if kind, known := p.kinds[name]; known && (kind != tar.TypeDir || h.Typeflag != tar.TypeDir) {
		return fmt.Errorf("%q is there twice: %w", h.Name, errdefs.ErrInvalidArgument)
	}
	below := strconv.Itoa(s.step) + "/"
	out := &tar.Header{Name: below + name, Typeflag: h.Typeflag, Mode: h.Mode & int64(fs.ModePerm), ModTime: time.Unix(0, 0)}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Name += "/"
		if s.mode >= 0 {
			out.Mode = s.mode | s.mode&0o444>>2 // who may read it may enter it
		}
	case tar.TypeReg:
		out.Size = h.Size
		if s.mode >= 0 {
			out.Mode = s.mode
		}
		if p.size -= h.Size; p.size < 0 {
			return errPacked
		}
	case tar.TypeSymlink:
		out.Linkname = h.Linkname // it is copied as it is, and resolved by programs in the image
	case tar.TypeLink:
		target, err := inside(h.Linkname)
		if err != nil || p.kinds[target] != tar.TypeReg {
			return fmt.Errorf("%q is a link to %q, which is no file of the archive before it: %w", h.Name, h.Linkname, errdefs.ErrInvalidArgument)
		}
		out.Linkname = below + target
	default:
		return fmt.Errorf("%q is no file, directory or link: %w", h.Name, errdefs.ErrInvalidArgument)
	}
	p.kinds[name] = h.Typeflag
	if h.Typeflag == tar.TypeLink {
		p.kinds[name] = tar.TypeReg
	}
	if err := p.out.WriteHeader(out); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if _, err := io.Copy(p.out, content); err != nil {
		return broken(err)
	}
	return nil
}
