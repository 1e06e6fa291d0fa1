package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// reserved is the size, in bytes, reserved for the end in the journal; it is more than any end needs, see execjournal.MaxErrorBytes.
// spareRoom is the quota, in bytes, that btrfs needs temporarily to rename a file: 16 KiB for each of the 11 tree items that a rename may
// change, rounded up.
const (
	reserved  = 4096
	spareRoom = 256 << 10
)

// recorder writes the journal of one exec. The caller holds the exec's lock.
type recorder struct {
	dir     int
	journal execjournal.Journal
	spare   int // the temporary file for the end, with reserved blocks; -1: none
	left    *leftover
	synced  bool // the journal is on disk before the command starts, and the end before it is published
}

func newRecorder(dir int, execID, nonce string) *recorder {
	return &recorder{dir: dir, spare: -1, left: new(leftover), synced: true, journal: execjournal.Journal{
		Version: execjournal.Version, ExecID: execID, Nonce: nonce, BootID: bootID(),
	}}
}

// begin reserves the space for the end, so that a full disk cannot lose a result, and creates the journal. It returns fs.ErrExist if
// another process created the journal: then the command must not run.
func (r *recorder) begin() error {
	if err := r.reserve(); err != nil {
		return err
	}
	r.journal.State, r.journal.StartedAtNanos = execjournal.StateStarted, time.Now().UnixNano()
	err := r.create()
	if err != nil {
		_ = unix.Unlinkat(r.dir, r.endTemp(), 0)
	}
	return err
}

// refuse creates the journal of a command that could not be started, unless it exists.
func (r *recorder) refuse(why string) error {
	r.journal.State, r.journal.EndedAtNanos = execjournal.StateEnded, time.Now().UnixNano()
	r.journal.ExitCode, r.journal.ErrorCode = exitCannotRun, execjournal.ErrorStartFailed
	r.journal.Error = execjournal.Sentence(why)
	if err := r.create(); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (r *recorder) create() error {
	data, err := execjournal.Encode(r.journal)
	if err != nil {
		return err
	}
	id := r.journal.ExecID
	return execjournal.CreateExclusive(r.dir, execjournal.TempName(id, "journal"), execjournal.JournalName(id), data, r.synced)
}

// reserve opens the temporary file for the end.
func (r *recorder) reserve() error {
	fd, err := -1, error(unix.ENOENT)
	if r.left.name != "" && unix.Renameat(r.dir, r.left.name, r.dir, r.endTemp()) == nil {
		fd, err = unix.Openat(r.dir, r.endTemp(), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	r.left.name = ""
	if err != nil {
		fd, err = execjournal.CreateTemp(r.dir, r.endTemp(), execjournal.PrivateMode)
	}
	if err != nil {
		return err
	}
	err = execjournal.Entrust(r.dir, fd, -1, execjournal.PrivateMode)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, reserved)
	}
	if err == nil && onBtrfs(fd) {
		err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, reserved, spareRoom)
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		unix.Close(fd)
		_ = unix.Unlinkat(r.dir, r.endTemp(), 0)
		return fmt.Errorf("reserve %s: %w", r.endTemp(), err)
	}
	r.spare = fd
	return nil
}

// end replaces the journal by j. After an error it may be called again.
func (r *recorder) end(j execjournal.Journal) error {
	j.State = execjournal.StateEnded
	data, err := execjournal.Encode(j)
	if err != nil {
		return err
	}
	name := execjournal.JournalName(j.ExecID)
	if r.spare < 0 || r.fill(data) != nil || r.publish(name) != nil {
		if r.spare >= 0 {
			unix.Close(r.spare) // Replace removes the file, which frees space if a btrfs quota is used up
			r.spare = -1
		}
		return execjournal.Replace(r.dir, r.endTemp(), name, data, execjournal.PrivateMode, true)
	}
	// The end is published already. If a sync fails now, the disk is lost, and a retry would not help.
	if !r.synced {
		_ = execjournal.Sync(r.spare)
	}
	_ = execjournal.Sync(r.dir)
	unix.Close(r.spare)
	r.spare = -1
	return nil
}

// publish makes the reserved file the journal. It leaves the former one if more execs are likely to come, and the file system can exchange two
// names.
func (r *recorder) publish(name string) error {
	if !r.synced && !onBtrfs(r.spare) && unix.Renameat2(r.dir, r.endTemp(), r.dir, name, unix.RENAME_EXCHANGE) == nil {
		r.left.name = r.endTemp()
		return nil
	}
	return unix.Renameat(r.dir, r.endTemp(), r.dir, name)
}

// leftover is the file that an ended exec left in the log directory: its journal before the end. It becomes the temporary file of the
// supervisor's next exec, because a file that is neither made nor removed costs a file system least. If the supervisor is killed, it stays until
// the sandbox is deleted.
type leftover struct{ name string } // empty: none

// discard removes the file.
func (l *leftover) discard(logs string) {
	if l.name == "" {
		return
	}
	if dir, err := execjournal.OpenDir(logs); err == nil {
		_ = unix.Unlinkat(dir, l.name, 0)
		unix.Close(dir)
	}
}

// fill overwrites the reserved file; it allocates no new blocks.
func (r *recorder) fill(data []byte) error {
	n, err := unix.Pwrite(r.spare, data, 0)
	if err != nil || n != len(data) {
		return fmt.Errorf("write the end: %d of %d bytes: %w", n, len(data), errors.Join(err, unix.EIO))
	}
	if err := unix.Ftruncate(r.spare, int64(n)); err != nil {
		return err
	}
	if !r.synced {
		return nil
	}
	return execjournal.Sync(r.spare)
}

// onBtrfs reports whether a file is on btrfs, where allocated blocks are not enough to write to the file and rename it.
func onBtrfs(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.BTRFS_SUPER_MAGIC
}

func (r *recorder) endTemp() string { return execjournal.TempName(r.journal.ExecID, "end") }

// bootID returns the kernel's boot ID; empty if the kernel does not report it.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(data) > 64 {
		return ""
	}
	return strings.TrimSpace(string(data))
}
