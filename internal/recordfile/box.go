package recordfile

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// box is what is known of one sandbox's files.
type box struct {
	id, path string

	// mu orders the writes to this sandbox's files, so it is held across them: a few calls that end in the page cache.
	// It is never held across a sync.
	mu      sync.Mutex
	gone    bool
	leaving bool // being deleted: what is removed stays so
	made    bool // its directory was made and the root is not synced

	record, execs logFile
	// What could not be written: the newest of the sandbox and of each exec.
	lateRecord *storev1.SandboxRecord
	lateExecs  []*storev1.ExecRecord
	lateGone   bool
	quiet      bool // nothing was written since the flusher's last look
}

func newBox(id, path string) *box {
	return &box{id: id, path: path, record: newRecordLog(), execs: newExecLog()}
}

func (b *box) sandbox(r *storev1.SandboxRecord) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaving = r.GetDesired().GetRunState() == storev1.RunState_RUN_STATE_DELETE
	b.lateRecord, b.quiet = r, false
	return b.write()
}

func (b *box) exec(r *storev1.ExecRecord) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := func(late *storev1.ExecRecord) bool { return late.GetExecId() == r.GetExecId() }
	b.lateExecs, b.quiet = append(slices.DeleteFunc(b.lateExecs, same), r), false
	return b.write()
}

// remove removes both files, and the directory if nothing else is in it.
func (b *box) remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.lateGone, b.lateRecord, b.lateExecs = true, true, nil, nil
	return b.write()
}

// retry writes what is late.
func (b *box) retry() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.write()
}

// write brings the files up to what is late. The caller holds the lock.
func (b *box) write() error {
	if b.lateGone {
		err := b.removeFiles()
		b.lateGone = err != nil
		return err
	}
	if b.gone || b.lateRecord == nil && len(b.lateExecs) == 0 {
		return nil
	}
	dirfd, err := b.open()
	if err != nil {
		return err
	}
	if dirfd < 0 {
		b.lateRecord, b.lateExecs = nil, nil
		return nil
	}
	defer unix.Close(dirfd)
	return b.writeLate(dirfd)
}

// open returns the directory, which is made if need be; -1 if it is to stay away.
func (b *box) open() (int, error) {
	dirfd, err := openDir(b.path)
	if !isGone(err) {
		return dirfd, err
	}
	b.record.forget()
	b.execs.forget()
	if b.leaving {
		return -1, nil
	}
	if err := makeDir(b.path); err != nil {
		return -1, err
	}
	b.made = true
	return openDir(b.path)
}

func (b *box) writeLate(dirfd int) error {
	var err error
	if b.lateRecord != nil {
		if err = b.record.put(dirfd, "", b.lateRecord); err == nil {
			b.lateRecord = nil
		}
	}
	for len(b.lateExecs) > 0 {
		r := b.lateExecs[0]
		if err := b.execs.put(dirfd, r.GetExecId(), r); err != nil {
			return err
		}
		b.lateExecs = b.lateExecs[1:]
	}
	b.lateExecs = nil
	return err
}

// removeFiles is best repeated: it knows nothing of what is there.
func (b *box) removeFiles() error {
	dirfd, err := openDir(b.path)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	for _, name := range execjournal.RecordNames() {
		if err := remove(dirfd, name); err != nil {
			return err
		}
	}
	err = unix.Rmdir(b.path)
	if err == nil || isGone(err) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil // execjournal removes what else is there
	}
	return fmt.Errorf("remove %s: %w", b.path, err)
}
