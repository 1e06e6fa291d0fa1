package controller_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// fence is the lock and the journal of one exec, as its supervisor holds them.
type fence struct {
	dir, lock *os.File
	journal   execjournal.Journal
	lost      func() // its supervisor died without a recorded end

	mu          sync.Mutex
	dead, ended bool
}

// fence takes the lock and links the journal, or fails because the journal exists. Like the shim, it does not even lock an exec that has a
// journal: a concurrent observer would take it for alive.
func (s *fakeShim) fence(b *fakeBox, req execjournal.Request) (*fence, error) {
	dir, err := os.Open(b.logs)
	if err != nil {
		return nil, err
	}
	if begun, err := execjournal.Exists(int(dir.Fd()), execjournal.JournalName(req.ExecID)); err != nil || begun {
		return nil, errors.Join(err, dir.Close(), os.ErrExist)
	}
	f := &fence{dir: dir, journal: execjournal.Journal{
		Version: execjournal.Version, ExecID: req.ExecID, Nonce: req.Nonce, State: execjournal.StateStarted,
		StartedAtNanos: s.wall().UnixNano(),
	}, lost: func() { s.lost(b.key(req.ExecID), b.id) }}
	f.lock, err = os.OpenFile(filepath.Join(b.logs, execjournal.LockName(req.ExecID)), os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		err = unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	var data []byte
	if err == nil {
		data, err = execjournal.Encode(f.journal)
	}
	if err == nil {
		err = execjournal.CreateExclusive(int(dir.Fd()), execjournal.TempName(req.ExecID, "start"),
			execjournal.JournalName(req.ExecID), data, true)
	}
	if err != nil {
		return nil, errors.Join(err, f.lock.Close(), dir.Close())
	}
	b.mu.Lock()
	b.fences = append(b.fences, f)
	b.mu.Unlock()
	return f, nil
}

// end records the end, unless the supervisor is dead.
func (f *fence) end(j execjournal.Journal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return os.ErrClosed
	}
	data, err := execjournal.Encode(j)
	if err != nil {
		return err
	}
	err = execjournal.Replace(int(f.dir.Fd()), execjournal.TempName(j.ExecID, "end"),
		execjournal.JournalName(j.ExecID), data, 0o644, true)
	f.ended = err == nil
	return err
}

func (f *fence) free() {
	f.die()
	_ = f.dir.Close()
}

// die ends the supervisor. Its lock is free from now on, so the witness must know of the death before.
func (f *fence) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return
	}
	if f.dead = true; !f.ended {
		f.lost()
	}
	_ = f.lock.Close()
}
