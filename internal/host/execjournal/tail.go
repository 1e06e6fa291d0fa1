package execjournal

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
)

// MaxTailBytes is the most that Tail returns.
const MaxTailBytes = 1 << 20

// MainLogPaths returns the host paths of the two logs of the container's main process. They need not exist; their content is
// untrusted. They contain the output of all its starts, the oldest first.
func (d *Dir) MainLogPaths(sandboxID string) (stdout, stderr string) {
	return d.LogPaths(sandboxID, execid.Main)
}

// Tail returns the end of a log: at most limit bytes, and at most MaxTailBytes. execID may be execid.Main. It follows no symlink,
// opens no device and waits for no FIFO. The bytes are the command's output, possibly starting inside a
// character. Errors: invalid argument; not found; ErrMalformed for anything but a regular file; else the I/O error.
func (d *Dir) Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return nil, err
	}
	dir, err := openDir(d.Paths(sandboxID).Logs)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	name := StdoutName(execID)
	if stderr {
		name = StderrName(execID)
	}
	fd, err := openRegular(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFoundf("%w", err)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	size, err := sizeOf(fd)
	n := min(size, int64(max(limit, 0)), MaxTailBytes)
	var data []byte
	if err == nil {
		data, err = readAt(fd, int(n), size-n)
	}
	if err != nil {
		return nil, fmt.Errorf("read the end of %s: %w", name, err)
	}
	return data, nil
}
