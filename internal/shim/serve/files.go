package serve

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/filetree"
	"github.com/agbox/agbox/internal/host/passwd"
)

// names finds the names of owners. It reads the tables at the first use.
type names struct {
	tables        func() (users, groups []byte)
	users, groups map[uint32]string
}

func (n *names) load() {
	if n.users != nil {
		return
	}
	users, groups := n.tables()
	n.users, n.groups = passwd.Names(users, 7), passwd.Names(groups, 4)
}

// entry describes the file base of the directory dir, whose path is name.
func (n *names) entry(dir int, base, name string, flags int) (channel.Entry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, flags); err != nil {
		return channel.Entry{}, pathError("stat", name, err)
	}
	e := n.describe(&st, name)
	if e.Type == channel.Symlink {
		buf := make([]byte, unix.PathMax)
		if size, err := unix.Readlinkat(dir, base, buf); err == nil {
			e.Target = strings.ToValidUTF8(string(buf[:size]), "\uFFFD")
		}
	}
	return e, nil
}

func (n *names) describe(st *unix.Stat_t, name string) channel.Entry {
	n.load()
	e := channel.Entry{
		Name: path.Base(name), Path: name, Size: st.Size, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		Owner: n.users[st.Uid], Group: n.groups[st.Gid], Modified: st.Mtim.Nano(), Type: channel.Other, Version: version(st),
	}
	if !utf8.ValidString(name) {
		e.Raw = []byte(e.Name)
		e.Name, e.Path = strings.ToValidUTF8(e.Name, "\uFFFD"), strings.ToValidUTF8(name, "\uFFFD")
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = channel.Regular
	case unix.S_IFDIR:
		e.Type = channel.Directory
	case unix.S_IFLNK:
		e.Type = channel.Symlink
	}
	return e
}

// version changes with every write, chmod, chown and rename of a file: each sets the change time, which no program can set.
func version(st *unix.Stat_t) string {
	return fmt.Sprintf("%x-%x-%x-%x", st.Dev, st.Ino, st.Size, st.Ctim.Nano())
}

func statFile(s *stream) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if s.call.Follow {
		flags = 0
	}
	return s.answer(flags)
}

// answer sends the entry of the path.
func (s *stream) answer(flags int) error {
	e, err := s.entry(unix.AT_FDCWD, s.path, s.path, flags)
	if err != nil {
		return err
	}
	return s.result(e)
}

func makeDir(s *stream) error {
	name := strings.TrimRight(s.path, "/")
	if s.call.Parents {
		if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
	}
	err := os.Mkdir(cmp.Or(name, "/"), 0o755)
	switch {
	case err == nil && s.call.Mode != nil:
		err = pathError("chmod", name, unix.Chmod(name, *s.call.Mode&0o7777))
	case errors.Is(err, fs.ErrExist) && s.call.Parents:
		if st, serr := os.Stat(s.path); serr == nil && st.IsDir() {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return s.answer(0)
}

func removeFile(s *stream) error {
	st, err := os.Lstat(s.path)
	if err != nil {
		return err
	}
	if root, err := os.Stat("/"); err == nil && os.SameFile(st, root) {
		return &channel.Failed{Reason: channel.FileBusy, Message: "remove /: the root directory cannot be removed"}
	}
	if s.call.Recursive {
		err = os.RemoveAll(s.path)
	} else {
		err = os.Remove(s.path)
	}
	if err != nil {
		return err
	}
	return s.result(channel.Entry{})
}

func (w *Worker) moveFile(s *stream) error {
	to := w.absolute(s.call.To)
	if err := os.Rename(s.path, to); err != nil {
		if errors.Is(err, unix.EXDEV) {
			return fmt.Errorf("%w: they are on different file systems; copy and remove instead", err)
		}
		return err
	}
	s.path = to
	return s.answer(unix.AT_SYMLINK_NOFOLLOW)
}

// openRegular opens a regular file. It does not block on a FIFO and does not open devices.
func openRegular(op, name string, flags int, perm uint32) (*os.File, *unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Stat(name, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil, wrongType(op, name, "regular file")
	}
	if err != nil && (flags&unix.O_CREAT == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, nil, pathError(op, name, err)
	}
	fd, err := unix.Open(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, perm)
	if err != nil {
		return nil, nil, pathError(op, name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG { // replaced meanwhile
		err = unix.EISDIR
	}
	if err != nil {
		f.Close()
		return nil, nil, pathError(op, name, err)
	}
	return f, &st, nil
}

func readFile(s *stream) error {
	f, st, err := openRegular("read", s.path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if at := s.call.Offset; at != nil && *at > 0 {
		if *at > st.Size {
			return beyond(s.path, *at, st.Size)
		}
		if _, err := f.Seek(*at, io.SeekStart); err != nil {
			return err
		}
	}
	if s.call.Limit > 0 {
		r = io.LimitReader(f, s.call.Limit)
	}
	if err := s.result(s.describe(st, s.path)); err != nil {
		return err
	}
	if err := copyData(channel.NewDataWriter(s), r); err != nil {
		return err
	}
	return s.end()
}

func beyond(name string, offset, size int64) error {
	return &channel.Failed{Reason: channel.FileOffset, Message: fmt.Sprintf("%s has %d bytes; offset %d is beyond its end", name, size, offset)}
}

// copyData is io.Copy with a buffer of the size of a frame, and without splice(2), which frames rule out.
func copyData(w io.Writer, r io.Reader) error {
	buf := make([]byte, channel.MaxData)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxNames is how many names of one directory a listing holds in memory, and how many entries it sends.
const maxNames = 100_000

// listing sends the entries of a tree in pages.
type listing struct {
	*stream
	page channel.Page
	size int   // of the page in JSON, at most
	left int64 // entries
}

func listDir(s *stream) error {
	l := &listing{stream: s, left: maxNames}
	if s.call.Limit > 0 {
		l.left = min(l.left, s.call.Limit)
	}
	var after []string
	if s.call.After != "" {
		after = strings.Split(s.call.After, "/")
	}
	f, err := os.OpenFile(s.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := l.dir(f, strings.TrimRight(s.path, "/"), after, max(s.call.Depth, 1)); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	return s.end()
}

// dir lists f, which it closes, behind the relative path after.
func (l *listing) dir(f *os.File, name string, after []string, depth int) error {
	defer f.Close()
	found, more, err := l.behind(f, after)
	if err != nil {
		return err
	}
	for _, base := range found {
		skip := len(after) > 0 && base == after[0] // it was sent, but perhaps not what it contains
		if !skip && l.left == 0 {
			l.page.More = true
			return nil
		}
		full := name + "/" + base
		e, err := l.entry(int(f.Fd()), base, full, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		var rest []string
		if skip {
			rest = after[1:]
		} else if err := l.add(e); err != nil {
			return err
		}
		if e.Type != channel.Directory || depth == 1 || len(full) > unix.PathMax {
			continue
		}
		if err := l.below(f, base, full, rest, depth-1); err != nil || l.page.More {
			return err
		}
	}
	l.page.More = more
	return nil
}

// below lists a directory in a directory. One that cannot be opened has no entries.
func (l *listing) below(f *os.File, base, full string, after []string, depth int) error {
	fd, err := unix.Openat(int(f.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // as ls -R, but its entry has owner and mode
	}
	return l.dir(os.NewFile(uintptr(fd), full), full, after, depth)
}

// behind returns the names from after on, sorted, and whether there are more than maxNames.
func (l *listing) behind(f *os.File, after []string) (found []string, more bool, err error) {
	for {
		batch, err := f.Readdirnames(1024)
		for _, base := range batch {
			if len(after) == 0 || base >= after[0] {
				found = append(found, base)
			}
		}
		if end := err == io.EOF; end || len(found) > 2*maxNames {
			slices.Sort(found)
			if len(found) > maxNames+1 { // the first may be after itself
				found, more = found[:maxNames+1], true
			}
			if end {
				return found, more, nil
			}
		} else if err != nil {
			return nil, false, err
		}
	}
}

func (l *listing) add(e channel.Entry) error {
	const fixed = 400 // bytes of an entry without its strings; each byte of those becomes six at most
	size := fixed + 6*(len(e.Name)+len(e.Raw)+len(e.Path)+len(e.Target)+len(e.Owner)+len(e.Group))
	if l.size+size > channel.MaxData {
		if err := l.flush(); err != nil {
			return err
		}
	}
	l.page.Entries = append(l.page.Entries, e)
	l.size += size
	l.left--
	return nil
}

func (l *listing) flush() error {
	err := channel.WriteJSON(l.stream, channel.Data, l.page)
	l.page.Entries, l.size = l.page.Entries[:0], 0
	return err
}

// maxSkipped is the largest number of skipped files that a copy reports.
const maxSkipped = 100

func packTree(s *stream) error {
	if _, err := os.Lstat(s.path); err != nil {
		return err
	}
	name := path.Base(s.path)
	if name == "/" || strings.HasSuffix(s.path, "/.") {
		name = "."
	}
	reported := 0
	err := filetree.Pack(channel.NewDataWriter(s), s.path, filetree.PackOptions{Name: name, Follow: s.call.Follow, Skipped: func(text string) {
		if reported++; reported <= maxSkipped {
			_ = channel.Write(s, channel.Frame{Kind: channel.Data, Text: sentence(text)}) // the next write has the same error
		}
	}})
	if err != nil {
		return err
	}
	return s.end()
}

// sentence makes a text fit into an answer.
func sentence(text string) string {
	const most = 500 // bytes: 100 of them fit into a frame
	return strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD")
}

func unpackTree(s *stream) error {
	if s.call.Parents {
		if err := os.MkdirAll(s.path, 0o755); err != nil {
			return err
		}
	}
	if st, err := os.Stat(s.path); err != nil {
		return err
	} else if !st.IsDir() {
		return wrongType("unpack into", s.path, "directory")
	}
	if err := s.result(nil); err != nil {
		return err
	}
	var u channel.Unpacked
	data := s.data()
	counts, err := filetree.Unpack(data, s.path, filetree.UnpackOptions{KeepOwners: s.call.KeepOwners, Skipped: func(text string) {
		if len(u.Skipped) < maxSkipped {
			u.Skipped = append(u.Skipped, sentence(text))
		}
	}})
	if err == nil {
		_, err = io.Copy(io.Discard, data) // padding behind the end of the archive
	}
	if err != nil {
		return err
	}
	u.Entries, u.Bytes = counts.Entries, counts.Bytes
	return s.result(u)
}

// data returns what the daemon sends from now on.
func (s *stream) data() *channel.DataReader {
	return channel.NewDataReader(channel.NewReader(bufio.NewReaderSize(s, channel.MaxData)))
}
