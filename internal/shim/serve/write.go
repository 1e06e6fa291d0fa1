package serve

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
)

// writeFile replaces a file at once, or with InPlace or an Offset writes into it.
//
// The new content is synced before it gets the name. Without that, a file system may keep the rename and lose the content when the host
// dies, and the file would be empty. The directory is not synced: then the file has its old content, complete.
func writeFile(s *stream) error {
	name, err := resolve(s.path)
	if err != nil {
		return err
	}
	s.path = name
	if s.call.Parents {
		if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
	}
	if s.call.Offset != nil || s.call.InPlace {
		return s.writeInPlace()
	}
	r, err := s.newReplacement()
	if err != nil {
		return err
	}
	defer r.close()
	if err := s.fill(r.f); err != nil {
		return err
	}
	if err := r.dress(s); err != nil {
		return err
	}
	if err := r.f.Sync(); err != nil {
		return pathError("sync", s.path, errors.Unwrap(err))
	}
	if err := r.publish(s); err != nil {
		return err
	}
	return s.answer(unix.AT_SYMLINK_NOFOLLOW)
}

// resolve returns the path of the file that a symbolic link leads to, whether or not it exists.
func resolve(name string) (string, error) {
	for range 40 { // the kernel's limit
		text, err := os.Readlink(name)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			return name, nil // no link
		}
		if err != nil {
			return "", err
		}
		if path.IsAbs(text) {
			name = text
		} else {
			name = name[:strings.LastIndexByte(name, '/')+1] + text
		}
	}
	return "", pathError("open", name, unix.ELOOP)
}

// fill accepts the content and writes it at the position of f.
func (s *stream) fill(f *os.File) error {
	if err := s.result(nil); err != nil {
		return err
	}
	if err := copyData(f, s.data()); err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			return pathError("write", s.path, pe.Err) // a temporary file has another name
		}
		return err
	}
	return nil
}

func (s *stream) writeInPlace() error {
	flags := unix.O_WRONLY | unix.O_CREAT
	if s.call.Exclusive {
		flags |= unix.O_EXCL
	}
	if at := s.call.Offset; at != nil && *at > 0 {
		flags = unix.O_WRONLY
	}
	f, st, err := openRegular("write", s.path, flags, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.unchanged(st); err != nil {
		return err
	}
	if at := s.call.Offset; at == nil {
		err = f.Truncate(0)
	} else if *at > st.Size {
		return beyond(s.path, *at, st.Size)
	} else {
		_, err = f.Seek(*at, 0)
	}
	if err != nil {
		return err
	}
	if err := s.fill(f); err != nil {
		return err
	}
	if s.call.Mode != nil {
		if err := unix.Fchmod(int(f.Fd()), *s.call.Mode&0o7777); err != nil {
			return pathError("chmod", s.path, err)
		}
	}
	if s.call.Modified != nil {
		if err := s.setTime(f); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return s.answer(unix.AT_SYMLINK_NOFOLLOW)
}

// setTime sets the time of modification.
func (s *stream) setTime(f *os.File) error {
	ts := unix.NsecToTimespec(*s.call.Modified)
	return pathError("set the time of", s.path, unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(f), []unix.Timespec{ts, ts}, 0))
}

// fdPath is a path of an open file, with or without a name.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// unchanged compares a file, nil if there is none, with the version that the caller knows.
func (s *stream) unchanged(st *unix.Stat_t) error {
	if want := s.call.Version; want == "" || st != nil && version(st) == want {
		return nil
	}
	return &channel.Failed{Reason: channel.FileChanged, Message: s.path + " was changed since it was read"}
}

// replacement is the file that gets the name at the end. On file systems that can do so it has no name until then, and so leaves nothing
// behind when this process is killed; elsewhere a killed process leaves a file ".NAME.agbox-RANDOM" in the directory.
type replacement struct {
	f    *os.File
	temp string       // its name; empty if it has none
	old  *unix.Stat_t // the file that it replaces; nil: none
}

func (s *stream) newReplacement() (*replacement, error) {
	r := &replacement{}
	old, err := s.old()
	if err != nil {
		return nil, err
	}
	r.old = old
	if strings.HasSuffix(s.path, "/") {
		return nil, pathError("write", s.path, unix.EISDIR)
	}
	fd, err := unix.Open(path.Dir(s.path), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		r.temp = tempName(s.path)
		fd, err = unix.Open(r.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return nil, pathError("create a file in", path.Dir(s.path), err)
	}
	r.f = os.NewFile(uintptr(fd), s.path)
	return r, nil
}

// old returns the file that is to be replaced, which must be a regular one that the user may write to; nil if there is none.
func (s *stream) old() (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Lstat(s.path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.unchanged(nil)
	}
	if err != nil {
		return nil, pathError("write", s.path, err)
	}
	if s.call.Exclusive {
		return nil, pathError("create", s.path, unix.EEXIST)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, wrongType("write", s.path, "regular file")
	}
	if err := unix.Faccessat(unix.AT_FDCWD, s.path, unix.W_OK, 0); err != nil {
		return nil, pathError("write", s.path, err)
	}
	return &st, s.unchanged(&st)
}

func tempName(name string) string {
	const most = 200 // bytes of the name; a file system has 255
	base := path.Base(name)
	return path.Dir(name) + "/." + base[:min(len(base), most)] + ".agbox-" + rand.Text()[:8]
}

// dress gives the file its owner, mode and time.
func (r *replacement) dress(s *stream) error {
	mode := uint32(0o644)
	if r.old != nil {
		mode = r.old.Mode & 0o7777
		var st unix.Stat_t
		err := unix.Fstat(int(r.f.Fd()), &st)
		if err == nil && (st.Uid != r.old.Uid || st.Gid != r.old.Gid) {
			err = unix.Fchown(int(r.f.Fd()), int(r.old.Uid), int(r.old.Gid))
		}
		if errors.Is(err, unix.EPERM) {
			return &channel.Failed{Reason: channel.FilePermission, Message: fmt.Sprintf(
				"write %s: it belongs to %d:%d, and a new file of this user cannot; write in place, or as root", s.path, r.old.Uid, r.old.Gid)}
		}
		if err != nil {
			return pathError("chown", s.path, err)
		}
	}
	if s.call.Mode != nil {
		mode = *s.call.Mode & 0o7777
	}
	if err := unix.Fchmod(int(r.f.Fd()), mode); err != nil {
		return pathError("chmod", s.path, err)
	}
	if s.call.Modified != nil {
		return s.setTime(r.f)
	}
	return nil
}

// publish gives the file its name.
func (r *replacement) publish(s *stream) error {
	if s.call.Version != "" { // again: the upload took its time
		if _, err := s.old(); err != nil {
			return err
		}
	}
	if s.call.Exclusive || r.old == nil {
		err := unix.Linkat(unix.AT_FDCWD, fdPath(r.f), unix.AT_FDCWD, s.path, unix.AT_SYMLINK_FOLLOW)
		if err == nil || s.call.Exclusive {
			return pathError("create", s.path, err) // a temporary name goes with close
		}
	}
	if r.temp == "" {
		temp := tempName(s.path)
		if err := unix.Linkat(unix.AT_FDCWD, fdPath(r.f), unix.AT_FDCWD, temp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return pathError("create", s.path, err)
		}
		r.temp = temp
	}
	err := unix.Rename(r.temp, s.path)
	if errors.Is(err, unix.EBUSY) {
		return &channel.Failed{Reason: channel.FileBusy, Message: fmt.Sprintf("replace %s: it is a mount of its own; write in place", s.path)}
	}
	if err != nil {
		return pathError("replace", s.path, err)
	}
	r.temp = ""
	return nil
}

// close removes what was not published.
func (r *replacement) close() {
	r.f.Close()
	if r.temp != "" {
		_ = unix.Unlink(r.temp) // if the directory is gone, so is the file
	}
}
