package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

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
//
// Anything that a container puts in place of the file harms at most its own agents: ReadLines follows no symlink, opens no
// device, waits for no FIFO. ErrMalformed describes the problem in one sentence; next is then the offset to continue at: the
// end of a file that was truncated, else from. A replacement file that is no shorter is read on like the original: its
// author could as well have appended. Other errors: invalid argument; the I/O error.
func (d *Dir) ReadLines(sandboxID, execID string, src Source, from int64, maxBytes int) (lines []Line, next int64, err error) {
	f, next, err := d.openSource(sandboxID, execID, src, from)
	if f == nil {
		return nil, next, err
	}
	defer unix.Close(f.fd)
	room := int64(min(max(maxBytes, MaxLineBytes+1), maxReadBytes))
	data, err := f.read(room)
	if err != nil {
		return nil, f.pos, fmt.Errorf("read %s of exec %s: %w", src, execID, err)
	}
	lines, n := split(data)
	return lines, f.pos + int64(n), nil
}

// ReadRest returns an unterminated last line, after the process has ended and ReadLines has read all complete lines. ok is
// false when there is none. next and errors are as for ReadLines.
func (d *Dir) ReadRest(sandboxID, execID string, src Source, from int64) (line Line, ok bool, next int64, err error) {
	f, next, err := d.openSource(sandboxID, execID, src, from)
	if f == nil {
		return Line{}, false, next, err
	}
	defer unix.Close(f.fd)
	if f.pos == f.size {
		return Line{}, false, f.pos, nil
	}
	data, err := readAt(f.fd, int(min(f.size-f.pos, MaxLineBytes)), f.pos)
	if err != nil {
		return Line{}, false, from, fmt.Errorf("read %s of exec %s: %w", src, execID, err)
	}
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return Line{Data: data[:i]}, true, f.pos + int64(i) + 1, nil
	}
	return Line{Data: data, Cut: f.pos+int64(len(data)) < f.size}, true, f.size, nil
}

// read returns the next bytes: up to the end of the file, room bytes, or enough for MaxLines.
func (f *source) read(room int64) ([]byte, error) {
	for size := int64(firstRead); ; size *= 2 {
		data, err := readAt(f.fd, int(min(f.size-f.pos, room, size)), f.pos)
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

// source is a file that is being read.
type source struct {
	fd        int
	pos, size int64
	skipping  bool // inside a cut line whose end was not found yet
}

// openSource opens a file for reading at the first line that starts at from or after it; otherwise it returns nil and the results for
// ReadLines.
func (d *Dir) openSource(sandboxID, execID string, src Source, from int64) (f *source, next int64, err error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return nil, from, err
	}
	if from < 0 {
		return nil, from, invalidf("offset %d is negative", from)
	}
	fd, err := d.openAgentFile(sandboxID, execID, src)
	if errors.Is(err, fs.ErrNotExist) {
		if from == 0 {
			return nil, 0, nil
		}
		return nil, from, fmt.Errorf("%w: %s of exec %s was removed", ErrMalformed, src, execID)
	}
	if err != nil {
		return nil, from, err
	}
	size, err := sizeOf(fd)
	if err == nil && size > from {
		f := &source{fd: fd, pos: from, size: size}
		if err = f.skipLine(); err == nil && !f.skipping {
			return f, f.pos, nil
		}
		unix.Close(fd)
		return nil, f.pos, err
	}
	unix.Close(fd)
	if err != nil {
		return nil, from, fmt.Errorf("stat %s of exec %s: %w", src, execID, err)
	}
	if size < from {
		return nil, size, fmt.Errorf("%w: %s of exec %s has shrunk from %d bytes to %d", ErrMalformed, src, execID, from, size)
	}
	return nil, from, nil
}

func (d *Dir) openAgentFile(sandboxID, execID string, src Source) (int, error) {
	dir, err := d.openAgentDir(sandboxID, src)
	if err != nil {
		return -1, err
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

// openAgentDir opens the directory of a source. The container can replace the directory of the outboxes by a symlink, so no
// symlink is followed.
func (d *Dir) openAgentDir(sandboxID string, src Source) (int, error) {
	p := d.Paths(sandboxID)
	if src == Stdout {
		return openDir(p.Logs)
	}
	out, err := openDir(p.Out)
	if err != nil {
		return -1, err
	}
	defer unix.Close(out)
	fd, err := unix.Openat(out, AgentsDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("%w: %s is not a directory", ErrMalformed, AgentsDir)
	case errors.Is(err, fs.ErrPermission):
		return -1, fmt.Errorf("%w: %s may not be read", ErrMalformed, AgentsDir)
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", AgentsDir, err)
	}
	return fd, nil
}

// skipLine advances to the start of the next line. When the byte before pos is not a newline, ReadLines already returned the
// first part of that line, cut: so the offset alone determines where to continue.
func (f *source) skipLine() error {
	if f.pos == 0 {
		return nil
	}
	before, err := readAt(f.fd, 1, f.pos-1)
	if err != nil || len(before) == 1 && before[0] == '\n' {
		return err
	}
	f.skipping = true
	buf := make([]byte, min(skipChunk, f.size-f.pos))
	for left := maxSkipBytes; left > 0 && f.pos < f.size && f.skipping; left -= len(buf) {
		if err := f.skip(buf); err != nil {
			return err
		}
	}
	return nil
}

// skip reads one chunk. It seeks past holes: a sparse file costs the container nothing, and must cost the daemon nothing.
func (f *source) skip(buf []byte) error {
	data, err := unix.Seek(f.fd, f.pos, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		f.pos = f.size
		return nil
	case err == nil:
		f.pos = min(max(f.pos, data), f.size)
	}
	n, err := unix.Pread(f.fd, buf[:min(f.size-f.pos, int64(len(buf)))], f.pos)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return err
	}
	piece := buf[:n]
	if i := bytes.IndexByte(piece, '\n'); i >= 0 {
		f.pos += int64(i) + 1
		f.skipping = false
		return nil
	}
	if len(piece) == 0 {
		f.pos = f.size // the file was truncated; the next call returns the error
		return nil
	}
	f.pos += int64(len(piece))
	return nil
}
