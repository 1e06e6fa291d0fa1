package store

import (
	"context"

	bolt "go.etcd.io/bbolt"
)

// MarkerWritten reports whether the marker volume was once made in the engine. Errors: ErrUnavailable.
func (s *Store) MarkerWritten(ctx context.Context) (bool, error) {
	var found bool
	err := s.view(ctx, func(tx *bolt.Tx) error {
		found = get(tx, bucketMeta, []byte(keyEngineMarker)) != nil
		return nil
	})
	return found, err
}

// SetMarkerWritten records that the marker volume is in the engine. Call it after the volume was made. Errors:
// ErrUnavailable.
func (s *Store) SetMarkerWritten(ctx context.Context) error {
	return s.update(ctx, func(t *txn) error {
		return t.putInt(bucketMeta, keyEngineMarker, uint64(t.now.UnixNano()))
	})
}
