package execjournal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the daemon's records of a sandbox, in its directory below runRoot and beside what is mounted from there. What
// is in them is the business of package recordfile.
const (
	RecordName    = "record"
	NewRecordName = ".record.tmp"
	ExecsName     = "execs"
	NewExecsName  = ".execs.tmp"
)

// RecordNames in the order in which they are removed: as long as there is a record, a delete that was cut off is known.
func RecordNames() []string {
	return []string{NewExecsName, ExecsName, NewRecordName, RecordName}
}

func isRecordName(name string) bool { return slices.Contains(RecordNames(), name) }

// removeRun removes the directory of a sandbox below runRoot, its records last.
func removeRun(path string, deadline time.Time) error {
	if err := emptyTree(path, deadline, isRecordName); err != nil {
		return err
	}
	fd, err := openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, name := range RecordNames() {
		if err := unix.Unlinkat(fd, name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s of %s: %w", name, path, err)
		}
	}
	return removeEmpty(path)
}

func removeEmpty(path string) error {
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
