package store

import "context"

// RebuildPending reports whether this file took the place of a lost one and its records are not all rebuilt yet: who is
// not in it may exist all the same. It outlives restarts until RebuildDone. From memory.
func (s *Store) RebuildPending() bool { return s.rebuilding.Load() }

// RebuildDone records that everything that could be found has been adopted. Errors: ErrUnavailable; the rebuild is pending
// then.
func (s *Store) RebuildDone(ctx context.Context) error {
	if !s.RebuildPending() {
		return nil
	}
	if err := s.update(ctx, func(t *txn) error { return t.delete(bucketMeta, keyRebuild) }); err != nil {
		return err
	}
	s.rebuilding.Store(false)
	return nil
}
