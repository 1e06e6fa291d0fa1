package store

import (
	"context"

	"google.golang.org/protobuf/proto"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Clock returns the record of the last SetClock; nil if there is none or it does not decode. Errors: ErrUnavailable.
func (s *Store) Clock(ctx context.Context) (*storev1.ClockRecord, error) {
	var rec *storev1.ClockRecord
	err := s.view(ctx, func(tx *bolt.Tx) error {
		if get(tx, bucketMeta, []byte(keyClock)) == nil {
			return nil
		}
		found := &storev1.ClockRecord{}
		if (loader{tx, s.corrupt.add}).message(bucketMeta, keyClock, "", found) == nil {
			rec = found
		}
		return nil
	})
	return rec, err
}

// SetClock records the state of the host's clock. Errors: ErrUnavailable.
func (s *Store) SetClock(ctx context.Context, rec *storev1.ClockRecord) error {
	rec = proto.CloneOf(rec)
	return s.update(ctx, func(t *txn) error { return t.put(bucketMeta, keyClock, rec) })
}
