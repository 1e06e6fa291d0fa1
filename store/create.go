package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/disk"
)

// createFile writes a complete file beside o.Path and then renames it: after a crash, a file of that name has a schema and an instance.
func createFile(o Options) error {
	tmp := o.Path + ".new"
	if err := disk.Remove(tmp); err != nil {
		return fmt.Errorf("remove unfinished store: %w", err)
	}
	db, err := bolt.Open(tmp, 0o600, &bolt.Options{Timeout: o.LockTimeout})
	if err != nil {
		return openError(tmp, err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return initialize(tx, o) })
	if err = errors.Join(err, db.Close()); err != nil {
		return errors.Join(fmt.Errorf("initialize store: %w", classify(err)), os.Remove(tmp))
	}
	if err := os.Rename(tmp, o.Path); err != nil {
		return fmt.Errorf("name new store: %w", err)
	}
	if err := disk.Sync(filepath.Dir(o.Path)); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	return nil
}

func initialize(tx *bolt.Tx, o Options) error {
	id, err := instanceOf(o)
	if err != nil {
		return err
	}
	b, err := encode(&storev1.Instance{Uuid: id})
	if err != nil {
		return err
	}
	meta, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
	if err != nil {
		return err
	}
	if err := errors.Join(meta.Put([]byte(keySchema), encodeInt(schemaVersion)), meta.Put([]byte(keyInstance), b), meta.Put([]byte(keyLineage), newLineage())); err != nil || !o.Rebuild {
		return err
	}
	return markRebuild(meta, encodeInt(uint64(o.Now().UnixNano())))
}

// markRebuild records that the file replaces a lost one. A daemon ran before: an engine without its marker is not new but a different one.
func markRebuild(meta *bolt.Bucket, now []byte) error {
	return errors.Join(meta.Put([]byte(keyRebuild), now), meta.Put([]byte(keyEngineMarker), now))
}

func instanceOf(o Options) (string, error) {
	if o.Instance != "" {
		if err := uuid.Validate(o.Instance); err != nil {
			return "", fmt.Errorf("instance %q: %w: %w", o.Instance, err, errdefs.ErrInvalidArgument)
		}
		return o.Instance, nil
	}
	return uuid.NewString(), nil
}
