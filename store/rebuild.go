package store

import (
	"context"
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// RebuildPending reports whether this file took the place of a lost one and its records are not all rebuilt yet: who is
// not in it may exist all the same. It outlives restarts until RebuildDone. From memory.
func (s *Store) RebuildPending() bool { return s.rebuilding.Load() }

// RebuildDone records that everything that could be found has been adopted. An agent of whose processes its execs know more than
// its own records is FAILED, as one that died with its newest process. Errors: ErrUnavailable; the rebuild is pending then.
func (s *Store) RebuildDone(ctx context.Context) error {
	if !s.RebuildPending() {
		return nil
	}
	for _, id := range s.LiveAgentIDs() {
		if err := s.update(ctx, func(t *txn) error { return t.meetProcesses(id) }); err != nil {
			return fmt.Errorf("meet the processes of agent %s: %w", id, err)
		}
	}
	if err := s.update(ctx, func(t *txn) error { return t.delete(bucketMeta, keyRebuild) }); err != nil {
		return err
	}
	s.rebuilding.Store(false)
	return nil
}

// updateAll runs each fn as a request of its own, in order and, as far as the writer takes them together, in one
// transaction. Once one could not be queued, none that follows is.
func (s *Store) updateAll(ctx context.Context, fns []func(*txn) error) []error {
	errs := make([]error, len(fns))
	requests := make([]*request, 0, len(fns))
	for i, fn := range fns {
		r := newRequest(fn)
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = s.enqueue(ctx, r)
		}
		if errs[i] != nil {
			errs = errs[:i+1]
			break
		}
		requests = append(requests, r)
	}
	for i, r := range requests { // the writer answers each, whatever becomes of ctx
		errs[i] = <-r.done
	}
	return errs
}

// oomSince reports whether an exec of a sandbox that ended at t or later, by the host's clock, was ended by the OOM killer.
func (l loader) oomSince(id string, t time.Time) bool {
	b := l.tx.Bucket([]byte(prefixExecStatus + id))
	if b == nil {
		return false
	}
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		var end storev1.ExecEnd
		if l.execEnd(id, string(k), &end) == nil && end.GetOomKilled() && end.GetEndedAt() >= t.UnixNano() {
			return true
		}
	}
	return false
}
