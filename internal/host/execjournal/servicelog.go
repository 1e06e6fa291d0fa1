package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// serviceLogName is the file with a service's output. Service names have letters, digits, hyphens, underscores and dots.
func serviceLogName(service string) string { return "_service." + service + ".log" }

// ServiceLogPath returns the host path of the file with a service's output. It need not exist; root in the sandbox can write to it.
func (d *Dir) ServiceLogPath(sandboxID, service string) string {
	return filepath.Join(d.Paths(sandboxID).Logs, serviceLogName(service))
}

// ServiceLog returns the output of a service that was stored; nil if there is none, or if the sandbox has replaced the file by anything but a
// regular file of at most limit bytes. Errors: invalid argument; else the I/O error.
func (d *Dir) ServiceLog(sandboxID, service string, limit int64) (data []byte, err error) {
	if err := checkIDs(sandboxID, service); err != nil {
		return nil, err
	}
	err = inDir(d.Paths(sandboxID).Logs, func(fd int) error {
		data, err = ReadFile(fd, serviceLogName(service), limit)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMalformed) {
			return nil
		}
		return err
	})
	return data, err
}

// ReplaceServiceLog atomically replaces the stored output of a service, and returns when it is on disk. It creates no directory: output that
// comes after Remove is dropped. It must not run concurrently for one service. Errors: invalid argument; else the I/O error.
func (d *Dir) ReplaceServiceLog(sandboxID, service string, data []byte) error {
	if err := checkIDs(sandboxID, service); err != nil {
		return err
	}
	name := serviceLogName(service)
	return inDir(d.Paths(sandboxID).Logs, func(fd int) error {
		if err := makeRoomFor(fd, name); err != nil {
			return err
		}
		return Replace(fd, TempName("_service."+service, "log"), name, data, PrivateMode, true)
	})
}

// makeRoomFor removes an empty directory that the sandbox made in place of a file. One that is not empty is an error.
func makeRoomFor(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return fmt.Errorf("replace the directory %s: %w", name, err)
}
