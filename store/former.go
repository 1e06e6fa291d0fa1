package store

import (
	"context"
	"slices"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// InstanceIDs returns the UUIDs that label our Docker objects: first this store's, then those of former stores. From memory.
func (s *Store) InstanceIDs() []string { return slices.Clone(*s.instances.Load()) }

// RememberInstances records permanently that objects labelled with these UUIDs are ours too. Errors: ErrUnavailable; ErrDataLoss.
func (s *Store) RememberInstances(ctx context.Context, uuids []string) error {
	all, err := updated(ctx, s, func(t *txn) (all []string, err error) {
		var instance storev1.Instance
		if err := decode(get(t.tx, bucketMeta, []byte(keyInstance)), &instance); err != nil {
			return nil, err
		}
		before := len(instance.GetFormer())
		for _, id := range uuids {
			if id != "" && id != instance.GetUuid() && !slices.Contains(instance.GetFormer(), id) {
				instance.Former = append(instance.Former, id)
			}
		}
		all = instancesOf(&instance)
		if len(instance.GetFormer()) == before {
			return all, nil
		}
		t.put(bucketMeta, keyInstance, &instance)
		return all, nil
	})
	if err == nil {
		s.instances.Store(&all)
	}
	return err
}

func instancesOf(i *storev1.Instance) []string {
	return append([]string{i.GetUuid()}, i.GetFormer()...)
}

// loadFormer loads the UUIDs from the record that loadInstance has validated.
func (s *Store) loadFormer(tx *bolt.Tx) error {
	var instance storev1.Instance
	if err := decode(get(tx, bucketMeta, []byte(keyInstance)), &instance); err != nil {
		return err
	}
	all := instancesOf(&instance)
	s.instances.Store(&all)
	return nil
}
