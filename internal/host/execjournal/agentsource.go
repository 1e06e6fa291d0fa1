package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

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
