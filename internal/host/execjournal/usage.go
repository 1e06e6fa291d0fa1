package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// FullName is an empty file in ctl/exec. While it exists, the sandbox's quota is exhausted and the output of its commands is
// dropped. The daemon creates and removes it.
const FullName = "full"

// Bounds of one Usage: a container can create any number of entries, at any depth.
const (
	maxUsageEntries = 50_000
	maxUsageDepth   = 8
)

// Usage is the disk space that the directories writable by a sandbox use.
type Usage struct {
	// Bytes of logs, journals and the out directory together. It is too low when there are more entries than one call reads.
	Bytes int64
	// Disk is the size of the file system of the logs.
	Disk int64
}

// Usage measures a sandbox's directories. It opens only directories, follows no link, and reads at most 50,000 entries.
// Missing directories count as empty. Errors: invalid argument; else the I/O error.
func (d *Dir) Usage(sandboxID string) (Usage, error) {
	if err := checkSandboxID(sandboxID); err != nil {
		return Usage{}, err
	}
	p := d.Paths(sandboxID)
	left := maxUsageEntries
	var u Usage
	for _, path := range []string{p.Logs, p.Out} {
		err := inDir(path, func(fd int) error {
			n, err := usage(fd, maxUsageDepth, &left)
			u.Bytes += n
			if err != nil {
				return fmt.Errorf("measure %s: %w", path, err)
			}
			return nil
		})
		if err != nil {
			return u, err
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.outputRoot, &st); err == nil {
		u.Disk = int64(st.Blocks) * st.Bsize
	}
	return u, nil
}

// usage sums a directory. Entries removed meanwhile count nothing.
func usage(fd, depth int, left *int) (sum int64, err error) {
	for name, err := range entries(fd) {
		if *left--; err != nil || *left < 0 {
			return sum, err
		}
		more, err := entryUsage(fd, name, depth, left)
		if err != nil {
			return sum, err
		}
		sum += more
	}
	return sum, nil
}

func entryUsage(dirfd int, name string, depth int, left *int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, ignoreMissing(err)
	}
	own := st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth == 0 {
		return own, nil
	}
	sub, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return own, ignoreMissing(err)
	}
	defer unix.Close(sub)
	sum, err := usage(sub, depth-1, left)
	return own + sum, err
}

// ignoreMissing drops errors that are caused by changes of the directory during the measurement.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return os.NewSyscallError("stat", err)
}

// SetFull creates or removes the file that marks a sandbox's quota as exhausted. Idempotent; it needs no disk space.
// Errors: invalid argument; not found before Prepare; the I/O error.
func (d *Dir) SetFull(sandboxID string, full bool) error {
	if err := checkSandboxID(sandboxID); err != nil {
		return err
	}
	if !full {
		return d.unlink(sandboxID, FullName)
	}
	return withDir(d.execDir(sandboxID), func(fd int) error { return Touch(fd, FullName, 0) })
}
