package store

import (
	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Inventory names what belongs to a database outside of it.
type Inventory struct {
	// Instances are the UUIDs that label its Docker objects, as of Store.InstanceIDs; none in a database of an older daemon.
	Instances []string
	// SandboxIDs are all that it has ever reserved.
	SandboxIDs []string
}

// ReadInventory reads a database that no process has open, without changing it. A damaged file can fault inside bbolt and crash the process:
// see CheckFile. Errors: ErrDataLoss, ErrUnavailable, ErrNotFound.
func ReadInventory(path string) (i Inventory, err error) {
	err = viewFile(path, func(tx *bolt.Tx) error {
		instance, err := read[*storev1.Instance](tx, bucketMeta, keyInstance)
		switch {
		case err == nil:
			i.Instances = instancesOf(instance)
		case !errdefs.IsNotFound(err):
			return err
		}
		ids := tx.Bucket([]byte(bucketSandboxID))
		if ids == nil {
			return nil
		}
		return ids.ForEach(func(id, _ []byte) error {
			i.SandboxIDs = append(i.SandboxIDs, string(id))
			return nil
		})
	})
	return i, err
}
