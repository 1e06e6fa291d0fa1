package recordfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncing is the sync of one box.
type syncing struct {
	box   *box
	err   error
	again bool // there is more to do

	made   bool // the directory is new in the root
	entry  bool // a file is new in the directory
	logs   []*logFile
	dirfd  int
	opened []*os.File
}

// prepareSync tries again what failed, compacts, and takes what is to be synced.
func (b *box) prepareSync() *syncing {
	s := &syncing{box: b, dirfd: -1}
	logs := []*logFile{&b.record, &b.execs}
	s.err = b.retry()
	for _, l := range logs {
		if err := b.compact(l); err != nil && !isGone(err) {
			s.err = errors.Join(s.err, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range logs {
		if l.dirty {
			s.logs = append(s.logs, l)
		}
		s.entry = s.entry || l.entry
		l.dirty, l.entry = false, false
	}
	s.made, b.made = b.made, false
	s.again = b.settle()
	return s
}

// settle lets go of what only the start needs, once nothing more is handed over. The caller holds the lock.
func (b *box) settle() (again bool) {
	if b.quiet {
		b.record.seen, b.execs.seen = nil, nil
	}
	b.quiet = true
	return b.record.seen != nil || b.execs.seen != nil
}

// begin opens the files and tells the kernel to write them.
func (s *syncing) begin() {
	if len(s.logs) == 0 {
		return
	}
	var err error
	if s.dirfd, err = openDir(s.box.path); err != nil {
		s.fail(err)
		return
	}
	for _, l := range s.logs {
		f, _, err := openFile(s.dirfd, l.name, unix.O_RDONLY)
		if err != nil {
			s.fail(err)
			continue
		}
		s.opened = append(s.opened, f)
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // a hint: the sync tells of errors
	}
}

// end waits until all is on disk.
func (s *syncing) end() {
	for _, f := range s.opened {
		if err := f.Sync(); err != nil {
			s.fail(err)
		}
		f.Close()
	}
	if s.dirfd < 0 {
		return
	}
	if s.entry {
		if err := syncDir(s.dirfd); err != nil {
			s.fail(fmt.Errorf("sync %s: %w", s.box.path, err))
		}
	}
	unix.Close(s.dirfd)
}

// fail leaves the sync to the next flush, unless the files were removed.
func (s *syncing) fail(err error) {
	if isGone(err) {
		return
	}
	s.err = errors.Join(s.err, err)
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	for _, l := range s.logs {
		l.dirty = true
	}
	s.box.record.entry = s.box.record.entry || s.entry
}
