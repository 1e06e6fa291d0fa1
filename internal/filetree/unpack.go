package filetree

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrArchive is an archive that is damaged, or that names files outside its directory.
var ErrArchive = errors.New("bad archive")

// ErrType is the attempt to replace a directory by another file, or the other way round.
var ErrType = errors.New("another type of file is there")

// UnpackOptions are the options of Unpack.
type UnpackOptions struct {
	// KeepOwners sets the numeric owners of the archive; otherwise the files belong to the user of this process.
	KeepOwners bool
	// Untrusted is for archives whose author must gain nothing on this host: set-user-ID and set-group-ID bits, attributes of the kernel's
	// security modules (file capabilities) and devices are left out.
	Untrusted bool
	// Rename returns the name under which an entry is unpacked, and false to skip it. Nil: unchanged.
	Rename func(name string) (string, bool)
	// Skipped is called with a sentence about each entry that is not unpacked as it is in the archive. Nil: these are not reported.
	Skipped func(string)
}

// Counts are what was unpacked: entries, and bytes of regular files.
type Counts struct{ Entries, Bytes int64 }

// Unpack unpacks a tar stream into the directory dir. Each file replaces one of the same name; directories are merged. It never writes
// outside dir: names and hard links resolve below it, a symbolic link that leads out of it is not followed, whoever made it and whenever.
// Long runs of zeros become holes. An error leaves what was unpacked before. Errors: ErrArchive, ErrType, *os.PathError.
func Unpack(r io.Reader, dir string, o UnpackOptions) (Counts, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Counts{}, err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	u := &unpacker{UnpackOptions: o, root: root, at: dir, buf: make([]byte, holeSize)}
	defer u.close()
	if u.Skipped == nil {
		u.Skipped = func(string) {}
	}
	if u.Rename == nil {
		u.Rename = func(name string) (string, bool) { return name, true }
	}
	err = u.all(tar.NewReader(bufio.NewReaderSize(r, bufferBytes)))
	return u.Counts, errors.Join(err, u.finish())
}

// holeSize is the granularity of holes.
const holeSize = 64 << 10

var zeros [holeSize]byte

type unpacker struct {
	UnpackOptions
	Counts
	root *os.Root
	at   string // for messages
	// The directory of the last entry stays open: archives list neighbours together.
	parent     *os.File
	parentName string
	dirs       []*tar.Header // their modes and times come last: a mode may forbid to add files, and adding them changes the time
	buf        []byte
}

func (u *unpacker) close() {
	if u.parent != nil {
		u.parent.Close()
	}
}

func (u *unpacker) all(tr *tar.Reader) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return archiveError(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := u.entry(tr, h); err != nil {
			return err
		}
	}
}

// archiveError distinguishes a damaged archive from an error of the stream.
func archiveError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return err
}

// inside returns a name of the archive as a path relative to the root, and false if it is skipped.
func (u *unpacker) inside(name string) (string, bool, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(name, 0) {
		return "", false, fmt.Errorf("%w: the name %q leads out of the directory", ErrArchive, name)
	}
	clean, ok := u.Rename(clean)
	return clean, ok && clean != ".", nil
}

func (u *unpacker) entry(tr *tar.Reader, h *tar.Header) error {
	name, ok, err := u.inside(h.Name)
	if err != nil || !ok {
		return err
	}
	u.Entries++
	h.Name = name
	fd, err := u.open(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if h.Typeflag == tar.TypeDir {
		return u.directory(fd, base, h)
	}
	if err := u.clear(fd, base, name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.regular(tr, fd, base, h)
	case tar.TypeLink:
		return u.link(fd, base, h)
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, fd, base); err != nil {
			return u.failed("symlink", name, err)
		}
		return u.settle(-1, fd, base, h)
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		return u.special(fd, base, h)
	}
	u.Skipped(fmt.Sprintf("%s: entries of type %q are not unpacked", u.path(name), h.Typeflag))
	return nil
}

func (u *unpacker) path(name string) string { return strings.TrimSuffix(u.at, "/") + "/" + name }

func (u *unpacker) failed(op, name string, err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		err = pe.Err
	}
	return &os.PathError{Op: op, Path: u.path(name), Err: err}
}

// unreached is the error of a directory that cannot be opened. os.Root has an error of its own for one outside.
func (u *unpacker) unreached(dir string, err error) error {
	if _, ok := errors.AsType[unix.Errno](err); !ok {
		return fmt.Errorf("%w: %s leads out of the directory through a symbolic link", ErrArchive, u.path(dir))
	}
	return u.failed("open", dir, err)
}

// open returns a descriptor of a directory below the root, which it creates if it is missing. It is valid until the next call.
func (u *unpacker) open(dir string) (int, error) {
	if u.parent != nil && u.parentName == dir {
		return int(u.parent.Fd()), nil
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY
	f, err := u.root.OpenFile(dir, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = u.root.MkdirAll(dir, 0o755); err == nil {
			f, err = u.root.OpenFile(dir, flags, 0)
		}
	}
	if err != nil {
		return -1, u.unreached(dir, err)
	}
	u.close()
	u.parent, u.parentName = f, dir
	return int(f.Fd()), nil
}

// clear removes the file that an entry replaces.
func (u *unpacker) clear(fd int, base, name string) error {
	err := unix.Unlinkat(fd, base, 0)
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EISDIR):
		return u.failed("replace a directory", name, ErrType)
	}
	return u.failed("replace", name, err)
}

func (u *unpacker) directory(fd int, base string, h *tar.Header) error {
	err := unix.Mkdirat(fd, base, uint32(h.Mode)&0o777|0o700)
	if errors.Is(err, fs.ErrExist) {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return u.failed("stat", h.Name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return u.failed("create a directory", h.Name, ErrType)
		}
		err = nil
	}
	if err != nil {
		return u.failed("mkdir", h.Name, err)
	}
	u.dirs = append(u.dirs, h)
	return nil
}

func (u *unpacker) regular(tr *tar.Reader, dir int, base string, h *tar.Header) error {
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return u.failed("create", h.Name, err)
	}
	f := os.NewFile(uintptr(fd), h.Name)
	defer f.Close()
	if err := u.content(tr, f, h); err != nil {
		return err
	}
	return u.settle(fd, dir, base, h)
}

// content writes the bytes of a file, and leaves a hole for each aligned block of zeros.
func (u *unpacker) content(tr *tar.Reader, f *os.File, h *tar.Header) error {
	for at := int64(0); ; {
		n, err := io.ReadFull(tr, u.buf)
		if hole := n == holeSize && bytes.Equal(u.buf, zeros[:]); !hole && n > 0 {
			if _, werr := f.WriteAt(u.buf[:n], at); werr != nil {
				return u.failed("write", h.Name, werr)
			}
		}
		at += int64(n)
		u.Bytes += int64(n)
		switch {
		case err == nil:
		case at == h.Size: // io.EOF, or io.ErrUnexpectedEOF of a last block that is not full
			if err := f.Truncate(h.Size); err != nil {
				return u.failed("truncate", h.Name, err)
			}
			return nil
		default:
			return archiveError(err)
		}
	}
}

func (u *unpacker) link(dir int, base string, h *tar.Header) error {
	target, ok, err := u.inside(h.Linkname)
	if err != nil {
		return err
	}
	if !ok {
		u.Skipped(fmt.Sprintf("%s: it is a link to %s, which was not unpacked", u.path(h.Name), h.Linkname))
		return nil
	}
	f, err := u.root.OpenFile(path.Dir(target), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return u.unreached(path.Dir(target), err)
	}
	if err == nil {
		err = unix.Linkat(int(f.Fd()), path.Base(target), dir, base, 0)
		f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is a link to %s, which does not exist", ErrArchive, h.Name, h.Linkname)
	}
	if err != nil {
		return u.failed("link", h.Name, err)
	}
	return nil
}

func (u *unpacker) special(dir int, base string, h *tar.Header) error {
	if u.Untrusted && h.Typeflag != tar.TypeFifo {
		u.Skipped(u.path(h.Name) + ": a device is not copied out of a sandbox")
		return nil
	}
	kinds := map[byte]uint32{tar.TypeFifo: unix.S_IFIFO, tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK}
	err := unix.Mknodat(dir, base, kinds[h.Typeflag]|u.mode(h), int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	if errors.Is(err, unix.EPERM) && h.Typeflag != tar.TypeFifo {
		u.Skipped(u.path(h.Name) + ": only root can create devices")
		return nil
	}
	if err != nil {
		return u.failed("mknod", h.Name, err)
	}
	return u.settle(-1, dir, base, h)
}

// finish sets the attributes of directories, the innermost first.
func (u *unpacker) finish() error {
	for _, h := range slices.Backward(u.dirs) {
		f, err := u.root.OpenFile(h.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return u.failed("open", h.Name, err)
		}
		err = u.settle(int(f.Fd()), int(f.Fd()), ".", h)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// mode returns the bits of chmod(2) that an entry gets.
func (u *unpacker) mode(h *tar.Header) uint32 {
	mode := uint32(h.Mode) & 0o7777
	if u.Untrusted {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	return mode
}

// settle sets owner, extended attributes, time and mode of the file base of dir, which it never follows; fd is its descriptor, or -1 if it
// cannot be opened. The mode comes after the owner, whose change clears set-user-ID bits, and last: it may forbid the rest.
func (u *unpacker) settle(fd, dir int, base string, h *tar.Header) error {
	if u.KeepOwners {
		if err := unix.Fchownat(dir, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return u.failed(fmt.Sprintf("give to %d:%d", h.Uid, h.Gid), h.Name, err)
		}
	}
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrKey)
		if !ok || fd < 0 || ours(name) || u.Untrusted && strings.HasPrefix(name, "security.") {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			u.Skipped(fmt.Sprintf("%s: its attribute %s cannot be set: %v", u.path(h.Name), name, err))
		}
	}
	mtime := unix.NsecToTimespec(h.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(dir, base, []unix.Timespec{mtime, mtime}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return u.failed("set the time of", h.Name, err)
	}
	mode, err := u.mode(h), error(nil)
	switch {
	case fd >= 0:
		err = unix.Fchmod(fd, mode)
	case h.Typeflag != tar.TypeSymlink:
		err = unix.Fchmodat(dir, base, mode, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) { // kernels before 6.6: it has the mode less the umask
			err = nil
		}
	}
	if err != nil {
		return u.failed("chmod", h.Name, err)
	}
	return nil
}
