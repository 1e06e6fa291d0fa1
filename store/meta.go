package store

import (
	"context"
	"slices"

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
		found, err := read[*storev1.EngineIdentity](tx, bucketMeta, keyEngineIdentity)
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

// Clock returns the record of the last SetClock; nil if there is none or it does not decode. Errors: ErrUnavailable.
func (s *Store) Clock(ctx context.Context) (*storev1.ClockRecord, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (*storev1.ClockRecord, error) {
		if get(tx, bucketMeta, []byte(keyClock)) == nil {
			return nil, nil
		}
		rec, _ := required[*storev1.ClockRecord](loader{tx, s.corrupt.add}, bucketMeta, keyClock, "")
		return rec, nil
	})
}

// SetClock records the state of the host's clock. Errors: ErrUnavailable.
func (s *Store) SetClock(ctx context.Context, rec *storev1.ClockRecord) error {
	rec = proto.CloneOf(rec)
	return s.update(ctx, func(t *txn) error { t.put(bucketMeta, keyClock, rec); return nil })
}

// InstanceIDs returns the UUIDs that label our Docker objects: first this store's, then those of former stores. From memory.
func (s *Store) InstanceIDs() []string { return slices.Clone(*s.instances.Load()) }

// RememberInstances records permanently that objects labelled with these UUIDs are ours too. Errors: ErrUnavailable; ErrDataLoss.
func (s *Store) RememberInstances(ctx context.Context, uuids []string) error {
	all, err := updated(ctx, s, func(t *txn) (all []string, err error) {
		instance, err := read[*storev1.Instance](t.tx, bucketMeta, keyInstance)
		if err != nil {
			return nil, err
		}
		before := len(instance.GetFormer())
		for _, id := range uuids {
			if id != "" && id != instance.GetUuid() && !slices.Contains(instance.GetFormer(), id) {
				instance.Former = append(instance.Former, id)
			}
		}
		all = instancesOf(instance)
		if len(instance.GetFormer()) == before {
			return all, nil
		}
		t.put(bucketMeta, keyInstance, instance)
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
