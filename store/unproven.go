package store

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/store/internal/txlog"
)

// RebuildPending reports whether this file replaced a lost one and its records are not all rebuilt yet: sandboxes and agents missing from
// it may still exist. It stays true across restarts until RebuildDone. From memory.
func (s *Store) RebuildPending() bool { return s.rebuilding.Load() }

// RebuildDone records that all recoverable records are stored. An agent whose execs include a newer process than its own records becomes
// FAILED, as if it had died with that process. Errors: ErrUnavailable; the rebuild is then still pending.
func (s *Store) RebuildDone(ctx context.Context) error {
	if !s.RebuildPending() {
		return nil
	}
	for _, id := range s.LiveAgentIDs() {
		if err := s.update(ctx, func(t *txn) error { t.meetProcesses(id); return nil }); err != nil {
			return fmt.Errorf("meet the processes of agent %s: %w", id, err)
		}
	}
	if err := s.update(ctx, func(t *txn) error { t.delete(bucketMeta, keyRebuild); return nil }); err != nil {
		return err
	}
	s.rebuilding.Store(false)
	return nil
}

// Unproven returns the records of the hidden sandboxes: a replay of the log restored them, and their newest changes, such as a stop, may
// be missing. No other method returns such a sandbox until RecordRebuilt has recorded its current state. Errors: ErrUnavailable; ctx's.
func (s *Store) Unproven(ctx context.Context) ([]Rebuilt, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (list []Rebuilt, err error) {
		l := loader{tx, s.corrupt.add}
		for k := range records(tx, bucketUnproven, nil) {
			if r, ok := l.rebuilt(string(k), s.InstanceID()); ok {
				list = append(list, r)
			}
		}
		return list, nil
	})
}

// rebuilt reads the record of a live sandbox with all its execs that decode; false: the sandbox's own records do not decode.
func (l loader) rebuilt(id, instance string) (Rebuilt, bool) {
	sb := l.sandbox(id, l.activeExecs(id), nil)
	if sb.Corrupt {
		return Rebuilt{}, false
	}
	sb.IdleSince = sb.idle(func(string) *Agent { return nil })
	r := Rebuilt{Record: &storev1.SandboxRecord{
		Version: recordVersion, SandboxId: sb.ID, Instance: instance, CreatedAt: toNanos(sb.CreatedAt),
		Spec: sb.Spec, Desired: sb.Desired, Progress: sb.Progress,
		State: int32(sb.State), StateChangedAt: toNanos(sb.StateChangedAt),
		ErrorCode: sb.ErrorCode, ErrorMessage: sb.ErrorMessage,
		LastSequence: sb.LastSequence, Preparing: sb.Preparing, IdleSince: toNanos(sb.IdleSince),
	}}
	for k := range records(l.tx, prefixExecConfig+id, nil) {
		if e, err := l.exec(id, string(k)); err == nil {
			r.Execs = append(r.Execs, &storev1.ExecRecord{ExecId: e.ID, Request: e.Request, Desired: e.Desired, End: e.End})
		}
	}
	return r, true
}

// recordVersion is the SandboxRecord.version that rebuilt sets.
const recordVersion = 1

// toNanos returns 0 for the zero time.
func toNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// liveIn returns the IDs of the sandboxes that have a config or an intent, and no time of deletion. It reads the keys of both buckets, so
// that damage to one of them hides no sandbox.
func liveIn(tx *bolt.Tx) (ids []string) {
	seen := map[string]bool{}
	for _, bucket := range []string{bucketConfig, bucketDesired} {
		for k := range records(tx, bucket, nil) {
			if id := string(k); !seen[id] && get(tx, bucketDeletedAt, k) == nil {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func instanceIn(tx *bolt.Tx) string {
	instance, _ := read[*storev1.Instance](tx, bucketMeta, keyInstance)
	return instance.GetUuid()
}

// reveal stages the removal of a hidden sandbox's replayed records; recordRebuilt stages the new ones.
func (t *txn) reveal(id string) {
	for k := range records(t.tx, prefixExecConfig+id, nil) {
		t.delete(bucketExecRefs, string(k))
	}
	for _, prefix := range []string{prefixEvents, prefixExecConfig, prefixExecDesired, prefixExecStatus} {
		t.stage(op{Kind: txlog.DropBucket, Bucket: prefix + id})
	}
	for _, bucket := range []string{bucketProgress, bucketGivenUp, bucketUnproven} {
		t.delete(bucket, id)
	}
}

// isHidden reports whether id is hidden until the daemon has observed the engine.
func (t *txn) isHidden(id string) bool { return get(t.tx, bucketUnproven, []byte(id)) != nil }

// execTaken reports whether an exec ID was ever used, except by the hidden sandbox of the given ID.
func (t *txn) execTaken(execID, sandboxID string) bool {
	if get(t.tx, bucketExecID, []byte(execID)) == nil {
		return false
	}
	ref, err := read[*storev1.ExecRef](t.tx, bucketExecRefs, execID)
	return err != nil || ref.GetSandboxId() != sandboxID || !t.isHidden(sandboxID)
}
