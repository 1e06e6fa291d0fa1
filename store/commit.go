package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// aloneAfterFull is the number of requests that get a commit of their own after a commit found no disk space.
const aloneAfterFull = 64

// roomTries limits how often commit makes room for one commit; the ballast has no more pieces.
const roomTries = 64

// commit commits tx, in which g was staged. If the disk is full, it makes room and stages and commits g again, until that succeeds or no
// room can be made: other writers can take the freed space first.
func (s *Store) commit(g *group, tx *bolt.Tx) error {
	err := s.o.commit(tx)
	for range roomTries {
		if !isDiskFull(err) || !s.unchanged() {
			break
		}
		s.alone = aloneAfterFull
		if !s.o.MakeRoom() {
			break
		}
		s.reserve.Again()
		s.extendReserve() // before another writer on the disk takes the space
		if tx, err = s.stageAgain(g); err != nil {
			return err
		}
		err = s.o.commit(tx)
	}
	if err != nil {
		return s.afterFailedCommit(err)
	}
	return nil
}

// stageAgain applies the staged changes of g to a new transaction. There is one writer, so what they read is still current.
func (s *Store) stageAgain(g *group) (*bolt.Tx, error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, fmt.Errorf("begin write: %w: %w", err, errdefs.ErrUnavailable)
	}
	for _, t := range g.accepted {
		for _, o := range t.ops {
			if err := apply(tx, o); err != nil {
				_ = tx.Rollback() // it was open: no other error is possible
				return nil, fmt.Errorf("apply changes again: write to %s: %w: %w", o.Bucket, err, errdefs.ErrUnavailable)
			}
		}
	}
	return tx, nil
}

// extendReserve keeps the reserve allocated behind the last used page of the file.
func (s *Store) extendReserve() {
	if _, used, err := s.newest(); err == nil {
		s.reserve.Extend(used)
	}
}

// newest returns the transaction named by the file's meta page, and the size of the part of the file that was ever used.
func (s *Store) newest() (txid int, used int64, err error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return 0, 0, err
	}
	return tx.ID(), tx.Size(), tx.Rollback()
}

// afterFailedCommit classifies a failed commit: nothing changed, or the store is down.
//
// bbolt writes data pages (File.WriteAt), syncs, writes the meta page (File.WriteAt), syncs. Its write errors are *fs.PathError, its
// fdatasync errors bare errnos, and its errors of growing the file, which it does first, plain text. So an error shows whether a write or
// a sync found no space. Only the meta page makes a commit; a new reader sees the transaction named by it, which shows whether it was
// written. If a write found no space and the meta page is unchanged, nothing changed: bbolt has dropped the transaction and reloaded its
// freelist, and later writes may succeed. After any other error the state of the disk is unknown until a restart checks the file.
func (s *Store) afterFailedCommit(err error) error {
	if isDiskFull(err) && s.unchanged() {
		return fmt.Errorf("disk full, nothing was written to %s: %w: %w", s.o.Path, err, errdefs.ErrUnavailable)
	}
	s.down = fmt.Errorf("store is down after a failed commit: %w: %w", err, errdefs.ErrUnavailable)
	s.setDurable(s.durable.Load().txid, s.down)
	s.o.OnFatal(fmt.Errorf("commit %s: %w", s.o.Path, err))
	return s.down
}

// noSpace lists the errors of a write that found no space: file system, quota, file size limit.
var noSpace = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}

// isNoSpace reports whether err is one of noSpace.
func isNoSpace(err error) bool {
	return slices.ContainsFunc(noSpace, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// isDiskFull reports whether a write, or growing the file for it, found no space. It is false for a sync with that error, because the
// state of the disk is then unknown.
func isDiskFull(err error) bool {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Op == "write" && isNoSpace(p.Err)
	}
	return err != nil && strings.HasPrefix(err.Error(), growthError) && // bbolt formats that error with %s
		slices.ContainsFunc(noSpace, func(e syscall.Errno) bool { return strings.HasSuffix(err.Error(), ": "+e.Error()) })
}

// growthError is the prefix of bbolt's error of growing the file.
const growthError = "file resize error: "

// unchanged reports whether the file still names the last durable transaction.
func (s *Store) unchanged() bool {
	txid, _, err := s.newest()
	return err == nil && txid == s.durable.Load().txid
}

// durable names the newest transaction that is on disk. bbolt shows a transaction to readers before its last sync has returned; a reader
// of such a transaction waits here, so that no caller reads data that a crash could revert.
type durable struct {
	txid int
	down error         // no later transaction will be durable
	next chan struct{} // closed when another durable has replaced this one
}

// setDurable is called by the writer, and by Open before the writer starts.
func (s *Store) setDurable(txid int, down error) {
	if was := s.durable.Swap(&durable{txid, down, make(chan struct{})}); was != nil {
		close(was.next)
	}
}

// classify adds ErrUnavailable to a lack of space while opening; it returns other errors unchanged.
func classify(err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("disk full: %w: %w", err, errdefs.ErrUnavailable)
	}
	return err
}
