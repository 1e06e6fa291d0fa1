package store

import (
	"context"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// MarkerWritten reports whether the marker volume was ever created in the engine. Errors: ErrUnavailable.
func (s *Store) MarkerWritten(ctx context.Context) (bool, error) {
	var found bool
	err := s.view(ctx, func(tx *bolt.Tx) error {
		found = get(tx, bucketMeta, []byte(keyEngineMarker)) != nil
		return nil
	})
	return found, err
}

// SetMarkerWritten records that the marker volume is in the engine. Call it after creating the volume. Errors: ErrUnavailable.
func (s *Store) SetMarkerWritten(ctx context.Context) error {
	return s.update(ctx, func(t *txn) error {
		return t.putInt(bucketMeta, keyEngineMarker, uint64(t.now.UnixNano()))
	})
}

// EngineIdentity returns the storage driver and data root of the engine when it was last accepted as ours; nil before the first record.
// Errors: ErrDataLoss, ErrUnavailable.
func (s *Store) EngineIdentity(ctx context.Context) (*storev1.EngineIdentity, error) {
	var found *storev1.EngineIdentity
	err := s.view(ctx, func(tx *bolt.Tx) error {
		b := get(tx, bucketMeta, []byte(keyEngineIdentity))
		if b == nil {
			return nil
		}
		found = &storev1.EngineIdentity{}
		return decode(b, found)
	})
	return found, err
}

// SetEngineIdentity records the storage driver and data root of the engine. Errors: ErrUnavailable.
func (s *Store) SetEngineIdentity(ctx context.Context, id *storev1.EngineIdentity) error {
	id = proto.CloneOf(id)
	return s.update(ctx, func(t *txn) error { return t.put(bucketMeta, keyEngineIdentity, id) })
}
