package execjournal

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
)

// DropLogs truncates the logs of all execs of sandboxID for which keep is false, and returns how many bytes of disk space that
// freed. Running commands may write more. Journals, locks and requests stay. It follows no symlink and truncates only
// regular files in the log directory. Idempotent. Errors: invalid argument; the first I/O error, after all files were
// tried.
func (d *Dir) DropLogs(sandboxID string, keep func(execID string) bool) (freed int64, err error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return 0, err
	}
	t := traces{}
	walkErr := t.within(d.Paths(sandboxID).Logs, func(dirfd int, name string) error {
		id, ok := ownerOf(name, stdoutSuffix, stderrSuffix, TimesName(stdoutSuffix), TimesName(stderrSuffix))
		if !ok || keep(id) {
			return nil
		}
		n, dropErr := truncate(dirfd, name)
		freed += n
		if dropErr != nil && err == nil {
			err = dropErr
		}
		return nil
	})
	return freed, errors.Join(walkErr, err)
}

// truncate empties a regular file and returns the disk space that it used, in bytes.
func truncate(dirfd int, name string) (int64, error) {
	h, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(h)
	var st unix.Stat_t
	if err := unix.Fstat(h, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks == 0 {
		return 0, err
	}
	if err := unix.Truncate(pathOf(h), 0); err != nil {
		return 0, fmt.Errorf("truncate %s: %w", name, err)
	}
	return st.Blocks * 512, nil
}

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
	out, err := d.OpenOutput(sandboxID, execID, stderr)
	if err != nil {
		return nil, err
	}
	f := out.file
	defer f.Close()
	size, err := sizeOf(f)
	if err != nil {
		return nil, err
	}
	n := min(size, int64(max(limit, 0)), MaxTailBytes)
	return readAt(f, n, size-n)
}
