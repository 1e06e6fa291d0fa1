package store

import (
	"context"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// MarkerWritten reports whether the marker volume was ever created in the engine. Errors: ErrUnavailable.
func (s *Store) MarkerWritten(ctx context.Context) (bool, error) {
	return s.exists(ctx, bucketMeta, keyEngineMarker)
}

// SetMarkerWritten records that the marker volume is in the engine. Call it after creating the volume. Errors: ErrUnavailable.
func (s *Store) SetMarkerWritten(ctx context.Context) error {
	return s.update(ctx, func(t *txn) error {
		t.putInt(bucketMeta, keyEngineMarker, uint64(t.now.UnixNano()))
		return nil
	})
}

// EngineIdentity returns the storage driver and data root of the engine when it was last accepted as ours; nil before the first record.
// Errors: ErrDataLoss, ErrUnavailable.
func (s *Store) EngineIdentity(ctx context.Context) (*storev1.EngineIdentity, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (*storev1.EngineIdentity, error) {
		found := &storev1.EngineIdentity{}
		err := decode(get(tx, bucketMeta, []byte(keyEngineIdentity)), found)
		if errdefs.IsNotFound(err) {
			return nil, nil
		}
		return found, err
	})
}

// SetEngineIdentity records the storage driver and data root of the engine. Errors: ErrUnavailable.
func (s *Store) SetEngineIdentity(ctx context.Context, id *storev1.EngineIdentity) error {
	id = proto.CloneOf(id)
	return s.update(ctx, func(t *txn) error { t.put(bucketMeta, keyEngineIdentity, id); return nil })
}
