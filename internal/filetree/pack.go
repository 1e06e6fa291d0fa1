// Package filetree packs file trees into tar streams and unpacks them, so that there and back is what "cp -a" does: types, modes, times in
// nanoseconds, owners, hard links and extended attributes. The shim uses it inside sandboxes, and the CLI for files of its own host.
//
// Memory does not grow with the size of files or directories; Pack remembers each file with several links, and Unpack each directory.
package filetree

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds the descriptors that Pack holds: one for each level.
	maxDepth = 1000
	// maxLinked bounds the memory for files with several links. Beyond it each name becomes a file of its own.
	maxLinked = 200_000
	// bufferBytes is the size of reads and writes of archives, whose own are of 512 bytes.
	bufferBytes = 64 << 10
	// xattrKey is the prefix of extended attributes in PAX records, as GNU tar and libarchive write them.
	xattrKey = "SCHILY.xattr."
)

// PackOptions are the options of Pack.
type PackOptions struct {
	// Name is that of the root in the archive; "." for the content of a directory.
	Name string
	// Follow packs what path leads to if it is a symbolic link. Other links are never followed.
	Follow bool
	// Skipped is called with a sentence about each file that is not in the archive, or not as it was. Nil: these are not reported.
	Skipped func(string)
}

// Pack writes the file or tree at path to w as a tar stream. A file that cannot be read is skipped and reported. It opens nothing but regular
// files and directories. A file that shrinks while it is read is padded with zeros, and of one that grows only the first bytes are packed;
// both are reported.
// Errors: those of w, and of opening path.
func Pack(w io.Writer, path string, o PackOptions) error {
	bw := bufio.NewWriterSize(w, bufferBytes)
	p := &packer{tw: tar.NewWriter(bw), linked: map[fileID]string{}, skipped: o.Skipped, buf: make([]byte, bufferBytes)}
	if p.skipped == nil {
		p.skipped = func(string) {}
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if o.Follow {
		flags = 0
	}
	if err := p.entry(unix.AT_FDCWD, path, path, o.Name, flags, 0); err != nil {
		return err
	}
	return errors.Join(p.tw.Close(), bw.Flush())
}

type fileID struct{ dev, ino uint64 }

type packer struct {
	tw      *tar.Writer
	linked  map[fileID]string // the first name of each file with several links
	skipped func(string)
	buf     []byte
}

// skip reports why a file below the root is not packed; for the root it returns the error.
func (p *packer) skip(depth int, path, doing string, err error) error {
	err = &os.PathError{Op: doing, Path: path, Err: err}
	if depth == 0 {
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) { // removed meanwhile: as if the archive were made later
		p.skipped(err.Error())
	}
	return nil
}

// entry packs the file base of the directory dir. path is for messages.
func (p *packer) entry(dir int, base, path, name string, follow, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, follow); err != nil {
		return p.skip(depth, path, "stat", err)
	}
	nofollow := unix.O_NOFOLLOW
	if follow == 0 {
		nofollow = 0
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return p.regular(dir, base, path, name, nofollow, depth, &st)
	case unix.S_IFDIR:
		return p.directory(dir, base, path, name, nofollow, depth)
	case unix.S_IFLNK:
		text, err := readlinkat(dir, base)
		if err != nil {
			return p.skip(depth, path, "readlink", err)
		}
		return p.leaf(path, name, &st, tar.TypeSymlink, text)
	case unix.S_IFIFO:
		return p.leaf(path, name, &st, tar.TypeFifo, "")
	case unix.S_IFCHR:
		return p.leaf(path, name, &st, tar.TypeChar, "")
	case unix.S_IFBLK:
		return p.leaf(path, name, &st, tar.TypeBlock, "")
	}
	p.skipped(path + ": a socket is not copied")
	return nil
}

func readlinkat(dir int, base string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, base, buf)
	return string(buf[:max(n, 0)]), err
}

// leaf packs a file without content, or a further name of one that was packed.
func (p *packer) leaf(path, name string, st *unix.Stat_t, kind byte, target string) error {
	if first, again := p.again(name, st); again {
		kind, target = tar.TypeLink, first
	}
	h := header(name, st, kind)
	h.Linkname = target
	h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	return p.header(path, h)
}

// again returns the first name under which the file was packed.
func (p *packer) again(name string, st *unix.Stat_t) (first string, again bool) {
	if st.Nlink < 2 || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return "", false
	}
	id := fileID{st.Dev, st.Ino}
	if first, again = p.linked[id]; !again {
		if len(p.linked) < maxLinked {
			p.linked[id] = name
		} else if len(p.linked) == maxLinked {
			p.linked[fileID{}] = ""
			p.skipped(fmt.Sprintf("more than %d files have several links; further ones are copied once for each link", maxLinked))
		}
	}
	return first, again
}

func header(name string, st *unix.Stat_t, kind byte) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
}

// header writes h. A name that tar cannot hold is skipped: there is none on Linux.
func (p *packer) header(path string, h *tar.Header) error {
	err := p.tw.WriteHeader(h)
	if errors.Is(err, tar.ErrHeader) {
		p.skipped(path + ": " + err.Error())
		return nil
	}
	return err
}

func (p *packer) regular(dir int, base, path, name string, nofollow, depth int, st *unix.Stat_t) error {
	if first, again := p.again(name, st); again {
		h := header(name, st, tar.TypeLink)
		h.Linkname = first
		return p.header(path, h)
	}
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|nofollow, 0)
	if err != nil {
		return p.skip(depth, path, "open", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Fstat(fd, st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		p.skipped(path + ": it was replaced while it was packed")
		return nil
	}
	h := header(name, st, tar.TypeReg)
	h.Size = st.Size
	p.xattrs(fd, path, h)
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	return p.content(f, path, st.Size)
}

// content packs exactly size bytes.
func (p *packer) content(f *os.File, path string, size int64) error {
	left := size
	for left > 0 {
		n, err := f.Read(p.buf[:min(int64(len(p.buf)), left)])
		if _, werr := p.tw.Write(p.buf[:n]); werr != nil {
			return werr
		}
		left -= int64(n)
		if err == io.EOF || err == nil && n == 0 {
			p.skipped(fmt.Sprintf("%s: it shrank while it was read; its last %d bytes are zeros in the copy", path, left))
		} else if err != nil {
			p.skipped(fmt.Sprintf("%v; the last %d bytes are zeros in the copy", err, left))
		}
		if err != nil {
			return p.zeros(left)
		}
	}
	if n, _ := f.Read(p.buf[:1]); n > 0 {
		p.skipped(fmt.Sprintf("%s: it grew while it was read; the copy has its first %d bytes", path, size))
	}
	return nil
}

func (p *packer) zeros(n int64) error {
	clear(p.buf)
	for n > 0 {
		m, err := p.tw.Write(p.buf[:min(int64(len(p.buf)), n)])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

func (p *packer) directory(dir int, base, path, name string, nofollow, depth int) error {
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|nofollow, 0)
	if err != nil {
		return p.skip(depth, path, "open", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return p.skip(depth, path, "stat", err)
	}
	h := header(strings.TrimSuffix(name, "/")+"/", &st, tar.TypeDir)
	p.xattrs(fd, path, h)
	if err := p.header(path, h); err != nil {
		return err
	}
	if depth == maxDepth {
		p.skipped(fmt.Sprintf("%s: what is below level %d is not copied", path, maxDepth))
		return nil
	}
	for {
		names, err := f.Readdirnames(512)
		for _, n := range names {
			if err := p.entry(fd, n, path+"/"+n, h.Name+n, unix.AT_SYMLINK_NOFOLLOW, depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return p.skip(depth, path, "list", err)
		}
	}
}

// xattrs adds the extended attributes of fd to h, as far as the file system has them and this process may read them.
func (p *packer) xattrs(fd int, path string, h *tar.Header) {
	n, err := unix.Flistxattr(fd, nil)
	if err != nil || n == 0 {
		return
	}
	list := make([]byte, n+1024)
	if n, err = unix.Flistxattr(fd, list); err != nil {
		p.skipped(fmt.Sprintf("%s: its extended attributes cannot be read: %v", path, err))
		return
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		value := make([]byte, 64<<10) // the largest that Linux has
		size, err := unix.Fgetxattr(fd, name, value)
		if err != nil || strings.Contains(name, "=") || ours(name) {
			continue
		}
		h.PAXRecords[xattrKey+name] = string(value[:size])
	}
}

// ours reports whether an attribute says how this host stores the file.
func ours(name string) bool {
	return name == "security.selinux" || strings.HasPrefix(name, "trusted.") || strings.HasPrefix(name, "system.nfs4")
}
