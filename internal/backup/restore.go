package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/disk"
)

// RestoreLogs writes the backup's missing logs below root and never changes an existing file. It may be interrupted at any moment and
// repeated. If root is missing, it is created with mode 0700. restored counts the files that were written, kept those that existed.
func (b *File) RestoreLogs(ctx context.Context, root string) (restored, kept int, err error) {
	if !b.WithLogs {
		return 0, 0, nil
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return 0, 0, fmt.Errorf("make the directory of the logs: %w", err)
	}
	r := restorer{root: root, dir: -1}
	err = b.EachLog(ctx, r.restore)
	return r.restored, r.kept, errors.Join(err, r.leave(), disk.Sync(root))
}

// restorer keeps the current sandbox's directory open: the archive has the files of one sandbox in a row.
type restorer struct {
	root, sandbox  string
	dir            int // -1: none
	restored, kept int
}

func (r *restorer) restore(log Log, text io.Reader) error {
	if err := r.enter(log.Sandbox); err != nil {
		return fmt.Errorf("open the log directory of %s: %w", log.Sandbox, err)
	}
	wrote, err := r.write(log, text)
	if err != nil {
		return fmt.Errorf("restore log %s of %s: %w", log.File, log.Sandbox, err)
	}
	if wrote {
		r.restored++
	} else {
		r.kept++
	}
	return nil
}

// enter opens the directory of a sandbox. Its running containers can write in it, but not rename it.
func (r *restorer) enter(sandbox string) error {
	if r.dir >= 0 && r.sandbox == sandbox {
		return nil
	}
	if err := r.leave(); err != nil {
		return err
	}
	path := filepath.Join(r.root, sandbox)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r.dir, r.sandbox = dir, sandbox
	return nil
}

func (r *restorer) leave() error {
	if r.dir < 0 {
		return nil
	}
	dir := r.dir
	r.dir = -1
	return errors.Join(unix.Fsync(dir), unix.Close(dir))
}

// restoring is the name of an incomplete file; one that a crash left can be removed.
const restoring = ".restoring.tmp"

// write writes a complete file under a temporary name, then links it to its own name unless a file has that name.
func (r *restorer) write(log Log, text io.Reader) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(r.dir, log.File, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	if err := unix.Unlinkat(r.dir, restoring, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	fd, err := unix.Openat(r.dir, restoring, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), log.File)
	_, err = io.Copy(f, text)
	if err = errors.Join(err, finish(f, log)); err != nil {
		return false, errors.Join(err, unix.Unlinkat(r.dir, restoring, 0))
	}
	err = unix.Linkat(r.dir, restoring, r.dir, log.File, 0)
	if errors.Is(err, unix.EEXIST) { // created meanwhile
		return false, unix.Unlinkat(r.dir, restoring, 0)
	}
	return err == nil, errors.Join(err, unix.Unlinkat(r.dir, restoring, 0))
}

// finish sets the mode and times of a written file, syncs and closes it.
func finish(f *os.File, log Log) error {
	fd := int(f.Fd())
	at := unix.NsecToTimeval(log.Modified.UnixNano())
	return errors.Join(unix.Fchmod(fd, log.Mode&0o644), unix.Futimes(fd, []unix.Timeval{at, at}), f.Sync(), f.Close())
}
