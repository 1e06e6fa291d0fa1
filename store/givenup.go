package store

import (
	"context"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// GiveUp records an operator's confirmations that sandboxes are gone, by sandbox ID, in one transaction. A newer confirmation replaces an
// older one; sandboxes that are not live or already have a missing verdict are skipped. A report with Progress.Missing removes the
// confirmation in its own transaction, and so does the end of the sandbox. A confirmation survives crashes, and the loss of the database
// if the log is complete. Errors: ErrUnavailable.
func (s *Store) GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error {
	copies := make(map[string]*storev1.GivenUp, len(confirmed))
	for id, g := range confirmed {
		copies[id] = proto.CloneOf(g)
	}
	return s.update(ctx, func(t *txn) error {
		for id, g := range copies {
			if sb := t.live(id); sb == nil || sb.Progress.GetMissing() {
				continue
			}
			t.put(bucketGivenUp, id, g)
		}
		return nil
	})
}

// ForgetGivenUp removes the confirmation of a sandbox that was observed again, if there is one. Errors: ErrUnavailable.
func (s *Store) ForgetGivenUp(ctx context.Context, id string) error {
	return s.update(ctx, func(t *txn) error { t.delete(bucketGivenUp, id); return nil })
}

// GivenUp returns the confirmations of live sandboxes by sandbox ID. It skips records that do not decode, so that the operator is asked
// again. Errors: ErrUnavailable.
func (s *Store) GivenUp(ctx context.Context) (map[string]*storev1.GivenUp, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (map[string]*storev1.GivenUp, error) {
		found := map[string]*storev1.GivenUp{}
		for k, v := range records(tx, bucketGivenUp, nil) {
			g := &storev1.GivenUp{}
			if sb := s.index.sandbox(string(k)); sb != nil && !sb.Corrupt && decode(v, g) == nil {
				found[string(k)] = g
			}
		}
		return found, nil
	})
}
