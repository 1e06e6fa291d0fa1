package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// MaxLineBytes is the longest line that ReadLines returns uncut.
	MaxLineBytes = 1 << 20
	// MaxLines is how many lines ReadLines returns at most: each line has a cost besides its bytes.
	MaxLines = 2048
)

// Bounds of one call, for any content that the container may write.
const (
	firstRead    = 16 << 10
	maxReadBytes = 8 << 20
	maxSkipBytes = 64 << 20
	skipChunk    = 64 << 10
)

// Source is one of the two files with an agent's output.
type Source int

const (
	// Stdout is the log of standard output.
	Stdout Source = iota
	// Outbox is the file that programs in the container append to.
	Outbox
)

// String returns the lower-case name of s.
func (s Source) String() string {
	if s == Outbox {
		return "outbox"
	}
	return "stdout"
}

// Line is one line without its newline. The bytes are the container's: any bytes.
type Line struct {
	Data []byte
	// Cut: the line is longer than MaxLineBytes, and Data is its first part.
	Cut bool
}

// ReadLines returns complete lines of a file starting at offset from, and the offset of the next call. The caller stores next
// together with what it derives from the lines: then each line is read once, across any crash. A call reads at most MaxLines and
// about maxBytes, but at least one line of any length: the rest of a cut line is skipped, in later calls if it is long. So
// next == from means that there is nothing to read now, and lines may be empty while next advances. A missing file has no lines.
// When the process has ended, an unterminated last line is returned as well, after all complete ones.
//
// Anything that a container puts in place of the file harms at most its own agents: ReadLines follows no symlink, opens no
// device, waits for no FIFO. ErrMalformed describes the problem in one sentence; next is then the offset to continue at: the
// end of a file that was truncated, else from. A replacement file that is no shorter is read on like the original: its
// author could as well have appended. Other errors: invalid argument; the I/O error.
func (d *Dir) ReadLines(sandboxID, execID string, src Source, from int64, maxBytes int, ended bool) (lines []Line, next int64, err error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return nil, from, err
	}
	if from < 0 {
		return nil, from, invalidf("offset %d is negative", from)
	}
	f, err := d.openAgentFile(sandboxID, execID, src)
	if errors.Is(err, fs.ErrNotExist) {
		if from == 0 {
			return nil, 0, nil
		}
		return nil, from, fmt.Errorf("%w: %s of exec %s was removed", ErrMalformed, src, execID)
	}
	if err != nil {
		return nil, from, err
	}
	defer f.Close()
	lines, next, err = readLines(f, from, int64(min(max(maxBytes, MaxLineBytes+1), maxReadBytes)), ended)
	if err != nil {
		return nil, next, fmt.Errorf("read %s of exec %s: %w", src, execID, err)
	}
	return lines, next, nil
}

func readLines(f *os.File, from, room int64, ended bool) (lines []Line, next int64, err error) {
	size, err := sizeOf(f)
	if err != nil {
		return nil, from, err
	}
	if size < from {
		return nil, size, fmt.Errorf("%w: it has shrunk from %d bytes to %d", ErrMalformed, from, size)
	}
	from, found, err := nextLine(f, from, size)
	if err != nil || !found {
		return nil, from, err
	}
	data, err := readSome(f, from, min(size-from, room))
	if err != nil {
		return nil, from, err
	}
	lines, n := split(data)
	if ended && n == 0 && len(data) > 0 {
		return []Line{{Data: data}}, from + int64(len(data)), nil
	}
	return lines, from + int64(n), nil
}

// nextLine returns the offset of the first line that starts at from or after it; !found if the file does not have it yet. When the byte
// before from is not a newline, ReadLines already returned the first part of that line, cut: so the offset alone determines where to
// continue. It seeks past each hole: a sparse file costs the container nothing, and must cost the daemon nothing.
func nextLine(f *os.File, from, size int64) (start int64, found bool, err error) {
	if from == 0 {
		return 0, true, nil
	}
	before, err := readAt(f, 1, from-1)
	if err != nil || string(before) == "\n" {
		return from, err == nil, err
	}
	buf := make([]byte, min(size-from, skipChunk))
	for left := maxSkipBytes; left > 0 && from < size; left -= len(buf) {
		data, err := f.Seek(from, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			return size, false, nil
		case err == nil:
			from = min(max(from, data), size)
		}
		n, err := f.ReadAt(buf[:min(size-from, int64(len(buf)))], from)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, true, nil
		}
		from += int64(n)
		if errors.Is(err, io.EOF) {
			return size, false, nil // the file was truncated; the next call returns the error
		}
		if err != nil {
			return from, false, err
		}
	}
	return from, false, nil
}

// readSome returns the bytes at an offset: room bytes, or enough for MaxLines.
func readSome(f *os.File, from, room int64) ([]byte, error) {
	for size := int64(firstRead); ; size *= 2 {
		data, err := readAt(f, min(room, size), from)
		if err != nil || int64(len(data)) < size || bytes.Count(data, []byte{'\n'}) >= MaxLines {
			return data, err
		}
	}
}

// split returns the first MaxLines lines in data and how many bytes they take. A line that is too long is returned without
// its end.
func split(data []byte) (lines []Line, taken int) {
	for taken < len(data) && len(lines) < MaxLines {
		rest := data[taken:]
		n := bytes.IndexByte(rest, '\n')
		end := n + 1
		if n < 0 {
			n, end = len(rest), len(rest)
			if n <= MaxLineBytes {
				break
			}
		}
		keep := min(n, MaxLineBytes)
		lines = append(lines, Line{Data: rest[:keep:keep], Cut: n > keep})
		taken += end
	}
	return lines, taken
}

func (d *Dir) openAgentFile(sandboxID, execID string, src Source) (*os.File, error) {
	dir, err := d.openAgentDir(sandboxID, src, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return openRegular(dir, sourceName(execID, src))
}

func sourceName(execID string, src Source) string {
	if src == Outbox {
		return WordsName(execID)
	}
	return StdoutName(execID)
}

// openAgentDir opens the directory of a source.
func (d *Dir) openAgentDir(sandboxID string, src Source, create bool) (int, error) {
	p := d.Paths(sandboxID)
	if src == Stdout {
		return OpenDir(p.Logs)
	}
	if create {
		return d.giveIn(p.Out, AgentsDir)
	}
	return OpenAgents(p.Out, false)
}

// giveIn is openIn with create, for the container's root: an engine that remaps users does not map the daemon's user.
func (d *Dir) giveIn(out, name string) (int, error) {
	fd, err := openIn(out, name, true)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if root := d.rootOf(filepath.Dir(out)); root != self() && unix.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid() {
		if err := unix.Fchown(fd, root.UID, root.GID); err != nil {
			return -1, errors.Join(fmt.Errorf("change the owner of %s: %w", name, err), unix.Close(fd))
		}
	}
	return fd, nil
}

// OpenAgents opens the directory of outboxes in the directory at out; see openIn.
func OpenAgents(out string, create bool) (int, error) { return openIn(out, AgentsDir, create) }

// openIn opens a directory in the directory at out; with create, it makes a missing one first. It follows no symlink in place of either.
// Errors: not found; ErrMalformed for anything else than a directory that may be read.
func openIn(out, name string, create bool) (int, error) {
	dir, err := OpenDir(out)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	var refused error
	if create {
		refused = unix.Mkdirat(dir, name, 0o755) // EEXIST, mostly
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, fmt.Errorf("open %s: %w", name, errors.Join(refused, err))
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("%w: %s is not a directory", ErrMalformed, name)
	case errors.Is(err, fs.ErrPermission):
		return -1, fmt.Errorf("%w: %s may not be read", ErrMalformed, name)
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}
