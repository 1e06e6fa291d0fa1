package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/store/internal/txlog"
)

// purgeBatch limits the keys that one transaction of a purge removes, so that no accept waits long for it.
const purgeBatch = 1000

// PurgeSandbox removes the records of a DELETED sandbox: config, intent, events, execs. Its ID and those of its execs stay reserved. It
// takes several transactions; the first makes the sandbox unknown and closes its watchers' channels, the last removes the time of
// deletion, by which DeletedBefore finds an interrupted purge. Errors: ErrFailedPrecondition while the sandbox is live; SANDBOX_NOT_FOUND
// when there is nothing to purge; ErrUnavailable.
func (s *Store) PurgeSandbox(ctx context.Context, id string) error {
	if err := s.update(ctx, func(t *txn) error { return t.beginPurge(id) }); err != nil {
		return err
	}
	err := s.updateUntil(ctx, func(t *txn) (done bool, err error) {
		// The exec configs are purged last, because their keys identify the exec references.
		if left := t.purgeBuckets(id, prefixEvents, prefixExecStatus, prefixExecDesired, prefixExecConfig); left {
			return false, nil
		}
		t.delete(bucketDeletedAt, id)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("purge sandbox %s: %w", id, err)
	}
	return nil
}

// updateUntil runs fn in one transaction after another until it is done or fails.
func (s *Store) updateUntil(ctx context.Context, fn func(*txn) (done bool, err error)) error {
	for { // each iteration but the last removes at least one key
		if done, err := updated(ctx, s, fn); done || err != nil {
			return err
		}
	}
}

func (t *txn) beginPurge(id string) error {
	switch {
	case t.live(id) != nil:
		return fmt.Errorf("purge sandbox %s: it is not deleted: %w", id, errdefs.ErrFailedPrecondition)
	case get(t.tx, bucketDeletedAt, []byte(id)) == nil:
		return sandboxNotFound(id)
	}
	t.touched = append(t.touched, Change{SandboxID: id})
	for _, bucket := range []string{bucketConfig, bucketDesired, bucketState, bucketProgress, bucketTrimmed} {
		t.delete(bucket, id)
	}
	return nil
}

// purgeBuckets stages the removal of at most purgeBatch keys from the buckets with these prefixes, in order, of the exec references with
// the keys of exec-config, and of each emptied bucket. It reports whether keys are left.
func (t *txn) purgeBuckets(id string, prefixes ...string) (left bool) {
	room := purgeBatch
	for _, prefix := range prefixes {
		for k := range records(t.tx, prefix+id, nil) {
			if room == 0 {
				return true
			}
			room--
			key := bytes.Clone(k) // k is invalid once ops are applied
			t.ops = append(t.ops, op{Kind: txlog.Delete, Bucket: prefix + id, Key: key})
			if prefix == prefixExecConfig {
				t.ops = append(t.ops, op{Kind: txlog.Delete, Bucket: bucketExecRefs, Key: key})
			}
		}
		t.ops = append(t.ops, op{Kind: txlog.DropBucket, Bucket: prefix + id})
	}
	return false
}
