package store

import (
	"context"
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// RebuildPending reports whether this file replaced a lost one and its records are not all rebuilt yet: sandboxes and agents missing from
// it may still exist. It stays true across restarts until RebuildDone. From memory.
func (s *Store) RebuildPending() bool { return s.rebuilding.Load() }

// RebuildDone records that all recoverable records are adopted. An agent whose execs include a newer process than its own records becomes
// FAILED, as if it had died with that process. Errors: ErrUnavailable; the rebuild is then still pending.
func (s *Store) RebuildDone(ctx context.Context) error {
	if !s.RebuildPending() {
		return nil
	}
	for _, id := range s.LiveAgentIDs() {
		if err := s.update(ctx, func(t *txn) error { return t.meetProcesses(id) }); err != nil {
			return fmt.Errorf("meet the processes of agent %s: %w", id, err)
		}
	}
	if err := s.update(ctx, func(t *txn) error { t.delete(bucketMeta, keyRebuild); return nil }); err != nil {
		return err
	}
	s.rebuilding.Store(false)
	return nil
}

// updateAll runs each fn as a separate request, in order; requests that the writer groups share one transaction. After one cannot be
// queued, no later one is queued.
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
	for i, r := range requests { // the writer answers each, even if ctx has ended
		errs[i] = <-r.done
	}
	return errs
}

// oomSince reports whether an exec of a sandbox that ended at t or later, by the host's clock, was ended by the OOM killer.
func (l loader) oomSince(id string, t time.Time) bool {
	for k := range records(l.tx, prefixExecStatus+id, nil) {
		var end storev1.ExecEnd
		if l.execEnd(id, string(k), &end) == nil && end.GetOomKilled() && end.GetEndedAt() >= t.UnixNano() {
			return true
		}
	}
	return false
}
