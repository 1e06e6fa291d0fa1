package store

import (
	"context"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// InstanceID returns the UUID of this store, the value of the instance label on all its Docker objects. It is set when the file is created
// and never changes.
func (s *Store) InstanceID() string { return (*s.instances.Load())[0] }

// Sandbox returns one sandbox, live or deleted. Errors: Refusal SANDBOX_NOT_FOUND (never existed, or purged); ErrDataLoss, together with
// the readable parts, when config or intent does not decode; ErrUnavailable.
func (s *Store) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	sb := s.index.sandbox(id)
	if sb == nil {
		var err error
		if sb, err = s.deletedSandbox(ctx, id); err != nil {
			return Sandbox{}, err
		}
	}
	if sb.Corrupt {
		return sb.copied(), corruptSandbox(id)
	}
	return sb.copied(), nil
}

func (s *Store) deletedSandbox(ctx context.Context, id string) (*Sandbox, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (*Sandbox, error) {
		if !isKept(tx, id) {
			return nil, sandboxNotFound(id)
		}
		return loader{tx, s.corrupt.add}.sandbox(id, nil, nil), nil
	})
}

// Reserved reports whether id was ever used for a sandbox of this store. Errors: ErrUnavailable.
func (s *Store) Reserved(ctx context.Context, id string) (bool, error) {
	return s.exists(ctx, bucketSandboxID, id)
}

// Unswept reports whether cleanup_ttl deleted the sandbox after a failure other than of its create. That failure may have been a wrong
// verdict, so the sandbox's remaining Docker objects are reported, and never removed as orphans. The record survives the purge. Errors:
// ErrUnavailable.
func (s *Store) Unswept(ctx context.Context, id string) (bool, error) {
	return s.exists(ctx, bucketUnswept, id)
}

func (s *Store) exists(ctx context.Context, bucket, key string) (bool, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (bool, error) { return get(tx, bucket, []byte(key)) != nil, nil })
}

// LiveIDs returns the sorted IDs of the sandboxes that are not DELETED and whose records decode. From memory.
func (s *Store) LiveIDs() []string {
	var ids []string
	for _, sb := range all(&s.index, s.index.sandboxes) {
		if !sb.Corrupt {
			ids = append(ids, sb.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// ActiveExecs returns the sorted IDs of the active execs of a sandbox, or of all sandboxes for "". From memory.
func (s *Store) ActiveExecs(sandboxID string) []string {
	if sandboxID != "" {
		if sb := s.index.sandbox(sandboxID); sb != nil {
			return slices.Clone(sb.ActiveExecs)
		}
		return nil
	}
	var ids []string
	for _, sb := range all(&s.index, s.index.sandboxes) {
		ids = append(ids, sb.ActiveExecs...)
	}
	slices.Sort(ids)
	return ids
}

// CountByState returns how many live sandboxes are in each state. From memory.
func (s *Store) CountByState() map[agboxv1.SandboxState]int {
	n := map[agboxv1.SandboxState]int{}
	for _, sb := range all(&s.index, s.index.sandboxes) {
		n[sb.State]++
	}
	return n
}

// Exec returns one exec, active or ended, until its sandbox is purged. Errors: Refusal EXEC_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) Exec(ctx context.Context, execID string) (Exec, error) {
	id := lookup(&s.index, s.index.execs, execID).sandboxID
	return viewed(ctx, s, func(tx *bolt.Tx) (Exec, error) {
		id, err := id, error(nil)
		if id == "" {
			id, err = endedExecSandbox(tx, execID)
		}
		if err == nil && !hasRecord(tx, id) {
			err = execNotFound(execID) // purged since the index was read
		}
		if err != nil {
			return Exec{}, err
		}
		return loader{tx, s.corrupt.add}.exec(id, execID)
	})
}

// ExecKilledForMemory reports whether the kernel's OOM killer ended an exec of the current run of the sandbox's container, which started
// at since. It reads the events from the newest back to the start of that run, which it recognizes by the events themselves, so that a
// clock set back hides no end. Only for execs from before a rebuild of the record does it compare times. Errors: ErrUnavailable.
func (s *Store) ExecKilledForMemory(ctx context.Context, sandboxID string, since time.Time) (bool, error) {
	w := oomWalk{sandboxID: sandboxID, since: since, before: noSequence}
	for !w.over {
		err := s.view(ctx, func(tx *bolt.Tx) error {
			w.page(loader{tx, s.corrupt.add})
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	return w.killed, nil
}
