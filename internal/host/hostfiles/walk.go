package hostfiles

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds the directories that are open at once: a directory is reached through its open parent, never by a path
	// that another process could change, so all parents stay open.
	maxDepth = 1000
	// maxPath is the longest path that the engine can create in the container, with its leading slash.
	maxPath = unix.PathMax - 1
	// batch is how many names of a directory are read at once.
	batch = 256
)

// packer is one run of Pack.
type packer struct {
	ctx    context.Context
	tw     *tar.Writer
	copy   Copy
	rules  excludes
	buf    []byte
	root   *os.Root // the source, when it is a directory
	prefix string   // of the names in the stream: the target, without a leading and with a trailing slash
}

// contents packs the entries of the directory fd, whose path below the source is rel, and closes it. Entries are in the
// order of the directory: sorting would require memory for all names.
func (p *packer) contents(fd int, rel string, depth int) error {
	if depth > maxDepth {
		unix.Close(fd)
		return refuse(rel, fmt.Sprintf("is nested more than %d directories deep", maxDepth))
	}
	dir := os.NewFile(uintptr(fd), rel)
	defer dir.Close()
	for {
		// Names only: for other data ReadDir may do lookups by path.
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := p.entry(fd, rel, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read directory %s: %w", quoted(rel), err)
		}
	}
}

// entry packs one entry of a directory. name is a single path element from the kernel, so openat with O_NOFOLLOW can't leave
// the directory.
func (p *packer) entry(dir int, dirRel, name string, depth int) error {
	rel := name
	if dirRel != "" {
		rel = dirRel + "/" + name
	}
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return unreadableEntry(rel, err)
	}
	if p.rules.match(rel, isType(st.Mode, unix.S_IFDIR)) {
		return nil
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if len("/")+len(p.prefix)+len(rel) > maxPath {
		return refuse(rel, fmt.Sprintf("has a target path of more than %d bytes", maxPath))
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		_, err := p.file(dir, name, rel, p.prefix+rel)
		return err
	case unix.S_IFDIR:
		return p.directory(dir, name, rel, depth)
	case unix.S_IFLNK:
		return p.link(dir, name, dirRel, rel, &st)
	default:
		return refuse(rel, "is a "+kind(st.Mode)+" and cannot be copied")
	}
}

// file packs a regular file as target; !found if it was removed. It opens without blocking, and checks the type again afterwards.
func (p *packer) file(dir int, name, rel, target string) (found bool, err error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, unreadableEntry(rel, err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if !isType(st.Mode, unix.S_IFREG) {
		return false, changed(quoted(rel), fmt.Errorf("it is a %s now", kind(st.Mode)))
	}
	header := tar.Header{Typeflag: tar.TypeReg, Name: target, Mode: mode(&st), Size: st.Size}
	if err := p.write(&header, &st); err != nil {
		return false, err
	}
	n, err := io.CopyBuffer(p.tw, io.LimitReader(reader{p.ctx, f}, st.Size), p.buf)
	if err == nil && n < st.Size {
		err = changed(quoted(rel), fmt.Errorf("it shrank from %d bytes to %d", st.Size, n))
	}
	if err != nil {
		return false, fmt.Errorf("copy %s: %w", quoted(rel), err)
	}
	return true, nil
}

func (p *packer) directory(dir int, name, rel string, depth int) error {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return unreadableEntry(rel, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	header := tar.Header{Typeflag: tar.TypeDir, Name: p.prefix + rel + "/", Mode: mode(&st)}
	if err := p.write(&header, &st); err != nil {
		unix.Close(fd)
		return err
	}
	return p.contents(fd, rel, depth+1)
}

// write completes and writes a header. PAX keeps fractions of seconds, and names of any length and encoding.
func (p *packer) write(h *tar.Header, st *unix.Stat_t) error {
	h.Uid, h.Gid = p.copy.UID, p.copy.GID
	h.ModTime = time.Unix(st.Mtim.Unix())
	h.Format = tar.FormatPAX
	if err := p.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("write the entry of %s: %w", quoted(h.Name), err)
	}
	return nil
}

// mode returns the permission bits that the copy keeps.
func mode(st *unix.Stat_t) int64 { return int64(st.Mode & (0o777 | unix.S_ISVTX)) }

// reader reads a file until the context ends.
type reader struct {
	ctx context.Context
	*os.File
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.File.Read(b)
}

// refuse returns the error for an entry that cannot be copied.
func refuse(rel, why string) error {
	return fmt.Errorf("%s %s; remove or exclude it: %w", quoted(rel), why, errdefs.ErrInvalidArgument)
}

// quoted formats a path for an error, with the middle of a long one left out.
func quoted(rel string) string {
	const keep = 200
	if len(rel) > 2*keep {
		rel = rel[:keep] + "[...]" + rel[len(rel)-keep:]
	}
	return fmt.Sprintf("%q", rel)
}

// unreadableEntry classifies a system error on an entry that existed before.
func unreadableEntry(rel string, err error) error {
	switch {
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return refuse(rel, fmt.Sprintf("cannot be read (%v)", err))
	case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO):
		return changed(quoted(rel), err)
	default:
		return fmt.Errorf("open %s: %w", quoted(rel), err)
	}
}

func kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "device"
	case unix.S_IFDIR:
		return "directory"
	default:
		return "special file"
	}
}
