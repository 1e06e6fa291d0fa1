package store

import (
	"fmt"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// baseSchema is the first schema version.
const baseSchema = 1

// migration migrates a file to version to, in one transaction with the version itself. It is needed only if an older daemon would misread
// the file; a new bucket, key or field needs none.
type migration struct {
	to    uint64
	apply func(*bolt.Tx) error
}

// migrations in ascending order. Each has a test with the old bytes.
var migrations []migration

func newestSchema(list []migration) uint64 {
	if len(list) == 0 {
		return baseSchema
	}
	return list[len(list)-1].to
}

// migrate brings an opened file to the newest schema. After a crash it continues from the recorded version. Errors: ErrFailedPrecondition
// for a file of a newer daemon, which migrate does not change; ErrDataLoss for a file without a version.
func migrate(db *bolt.DB, path string, list []migration) error {
	have, err := readSchema(db)
	if err != nil {
		return fmt.Errorf("read schema version of %s: %w", path, err)
	}
	if newest := newestSchema(list); have > newest {
		return fmt.Errorf("%s has schema version %d, this agboxd knows up to %d: this ids.db was written by a newer agboxd: %w",
			path, have, newest, errdefs.ErrFailedPrecondition)
	}
	for _, m := range list {
		if m.to <= have {
			continue
		}
		if err := db.Update(m.run); err != nil {
			return fmt.Errorf("migrate %s to schema version %d: %w", path, m.to, classify(err))
		}
	}
	return nil
}

func (m migration) run(tx *bolt.Tx) error {
	if err := m.apply(tx); err != nil {
		return err
	}
	return putSchema(tx, m.to)
}

func readSchema(db *bolt.DB) (uint64, error) {
	var v uint64
	err := db.View(func(tx *bolt.Tx) error {
		var err error
		v, err = decodeInt(get(tx, bucketMeta, []byte(keySchema)))
		if err != nil || v < baseSchema {
			return fmt.Errorf("no version that an agboxd has written: %w", errdefs.ErrDataLoss)
		}
		return nil
	})
	return v, err
}

func putSchema(tx *bolt.Tx, v uint64) error {
	b, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
	if err != nil {
		return err
	}
	return b.Put([]byte(keySchema), encodeInt(v))
}
