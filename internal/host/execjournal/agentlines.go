package execjournal

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// MaxLineBytes is the longest line that ReadLines gives whole.
	MaxLineBytes = 1 << 20
	// MaxLines is how many lines ReadLines gives at most: short ones are many, and each costs more than its bytes.
	MaxLines = 2048
)

// Bounds of one call, whatever the container made of the file.
const (
	firstRead    = 16 << 10
	maxReadBytes = 8 << 20
	maxSkipBytes = 64 << 20
	skipChunk    = 64 << 10
)

// Source is one of the two files that an agent speaks through.
type Source int

const (
	// Stdout is the log of standard output.
	Stdout Source = iota
	// Outbox is what programs inside append to.
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
	// Cut: the line is longer than MaxLineBytes, and Data is its beginning.
	Cut bool
}

// ReadLines returns whole lines of a file from offset from, and the offset to go on at, which the caller keeps together with
// what it makes of the lines: then each line is read once, whatever dies. It reads at most MaxLines and about maxBytes, but one
// line of any length: the rest of a line that was cut is passed over, in later calls if it is long. So with next == from there is
// nothing to read now, and lines may be empty while next moves. A file that is not there has no lines.
//
// Nothing that a container puts in the place of the file does more harm than to its own agents: no symlink is followed, no
// device opened, no FIFO waited for. ErrMalformed says that something is wrong, in one sentence; next is where to go on:
// behind the end of a file that has shrunk, else from. A file put in the place of another that is no shorter is read on
// like the other: who can do that can as well append. Other errors: invalid argument; the I/O error.
func (d *Dir) ReadLines(sandboxID, execID string, src Source, from int64, maxBytes int) (lines []Line, next int64, err error) {
	f, next, err := d.openSource(sandboxID, execID, src, from)
	if f == nil {
		return nil, next, err
	}
	defer unix.Close(f.fd)
	if err := f.passOver(); err != nil || f.skipping {
		return nil, f.pos, err
	}
	room := int64(min(max(maxBytes, MaxLineBytes+1), maxReadBytes))
	data, err := f.read(room)
	if err != nil {
		return nil, f.pos, fmt.Errorf("read %s of exec %s: %w", src, execID, err)
	}
	lines, n := split(data)
	return lines, f.pos + int64(n), nil
}

// ReadRest returns what follows the last newline, once the process has ended and ReadLines finds nothing more: a last line
// that was never finished. ok is false when there is none. next and errors are as of ReadLines.
func (d *Dir) ReadRest(sandboxID, execID string, src Source, from int64) (line Line, ok bool, next int64, err error) {
	f, next, err := d.openSource(sandboxID, execID, src, from)
	if f == nil {
		return Line{}, false, next, err
	}
	defer unix.Close(f.fd)
	if err := f.passOver(); err != nil || f.skipping || f.pos == f.size {
		return Line{}, false, f.pos, err
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

// read returns what follows: all there is, or room bytes, or enough for MaxLines.
func (f *source) read(room int64) ([]byte, error) {
	for size := int64(firstRead); ; size *= 2 {
		data, err := readAt(f.fd, int(min(f.size-f.pos, room, size)), f.pos)
		if err != nil || int64(len(data)) < size || bytes.Count(data, []byte{'\n'}) >= MaxLines {
			return data, err
		}
	}
}

// split returns the first MaxLines lines in data and how much of it they take. What is too long for a line is one, without its
// end.
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
