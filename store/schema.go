package store

import (
	"fmt"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// schemaVersion is that of a new file. It rises only when an older daemon would misread the file; a new bucket, key or field needs no new
// version.
const schemaVersion = 1

// CheckSchema returns an error if this program cannot read databases of this schema version. Errors: ErrFailedPrecondition.
func CheckSchema(version uint64) error {
	if version > schemaVersion {
		return fmt.Errorf("its schema version is %d and this agboxd knows up to %d: it is of a newer agboxd: %w", version, schemaVersion, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// loadSchema checks the version of an opened file. Errors: ErrFailedPrecondition for a file of a newer daemon; ErrDataLoss for a file
// without a version.
func (s *Store) loadSchema(tx *bolt.Tx) error {
	have, err := decodeInt(get(tx, bucketMeta, []byte(keySchema)))
	switch {
	case err != nil || have < schemaVersion:
		return fmt.Errorf("read schema version of %s: no version that an agboxd has written: %w", s.o.Path, errdefs.ErrDataLoss)
	case have > schemaVersion:
		return fmt.Errorf("%s has schema version %d, this agboxd knows up to %d: this ids.db was written by a newer agboxd: %w",
			s.o.Path, have, schemaVersion, errdefs.ErrFailedPrecondition)
	}
	return nil
}
