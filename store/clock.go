package store

import (
	"context"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Clock returns the record of the last SetClock; nil if there is none or it does not decode. Errors: ErrUnavailable.
func (s *Store) Clock(ctx context.Context) (*storev1.ClockRecord, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (*storev1.ClockRecord, error) {
		rec := &storev1.ClockRecord{}
		if get(tx, bucketMeta, []byte(keyClock)) == nil || (loader{tx, s.corrupt.add}).message(bucketMeta, keyClock, "", rec) != nil {
			return nil, nil
		}
		return rec, nil
	})
}

// SetClock records the state of the host's clock. Errors: ErrUnavailable.
func (s *Store) SetClock(ctx context.Context, rec *storev1.ClockRecord) error {
	rec = proto.CloneOf(rec)
	return s.update(ctx, func(t *txn) error { t.put(bucketMeta, keyClock, rec); return nil })
}
