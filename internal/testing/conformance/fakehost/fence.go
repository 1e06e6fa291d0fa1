package fakehost

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// fence is the lock and the journal of one exec, as its supervisor holds them.
type fence struct {
	dir, lock *os.File
	journal   execjournal.Journal
}

// newFence takes the lock and links the journal. Errors: os.ErrExist when somebody was first.
func newFence(logs string, req execjournal.Request) (*fence, error) {
	dir, err := os.Open(logs)
	if err != nil {
		return nil, err
	}
	f := &fence{dir: dir, journal: execjournal.Journal{
		Version: execjournal.Version, ExecID: req.ExecID, Nonce: req.Nonce, State: execjournal.StateStarted,
		StartedAtNanos: time.Now().UnixNano(),
	}}
	if err := f.take(logs, req.ExecID); err != nil {
		return nil, errors.Join(err, f.free())
	}
	return f, nil
}

func (f *fence) take(logs, id string) (err error) {
	f.lock, err = os.OpenFile(filepath.Join(logs, execjournal.LockName(id)), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); { // the daemon holds it for moments, to see whether it is free
		err = unix.Flock(int(f.lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return err
	}
	data, err := execjournal.Encode(f.journal)
	if err != nil {
		return err
	}
	return execjournal.CreateExclusive(int(f.dir.Fd()), execjournal.TempName(id, "start"), execjournal.JournalName(id), data)
}

func (f *fence) end(j execjournal.Journal) error {
	data, err := execjournal.Encode(j)
	if err != nil {
		return err
	}
	return execjournal.Replace(int(f.dir.Fd()), execjournal.TempName(j.ExecID, "end"),
		execjournal.JournalName(j.ExecID), data, 0o644, true)
}

func (f *fence) free() error {
	err := f.dir.Close()
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}
