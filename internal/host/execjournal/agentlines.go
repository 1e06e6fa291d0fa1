package execjournal

import (
	"bytes"
	"fmt"

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
