package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
)

// List returns the sandboxes that f selects, newest first, then by ID. Live ones come from memory, deleted ones from the file, at most 256
// in a transaction. Corrupt sandboxes are included; without config they have no labels. Errors: ErrUnavailable.
func (s *Store) List(ctx context.Context, f Filter) ([]Sandbox, error) {
	var out []Sandbox
	live := map[string]bool{}
	for _, sb := range all(&s.index, s.index.sandboxes) {
		live[sb.ID] = true
		if f.selects(sb.Spec) {
			out = append(out, sb.copied())
		}
	}
	if f.IncludeDeleted {
		deleted, err := s.listDeleted(ctx, f, live)
		if err != nil {
			return nil, err
		}
		out = append(out, deleted...)
	}
	slices.SortFunc(out, func(a, b Sandbox) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out, nil
}

func (f Filter) selects(spec *agboxv1.CreateSpec) bool {
	return hasLabels(spec.GetLabels(), f.Labels) && (f.GatewayOwner == "" || spec.GetGateway().GetOwner() == f.GatewayOwner)
}

// Namesakes returns the sorted IDs of the live sandboxes with a name other than except: those whose delete was requested, and the holder.
// Corrupt ones are left out. From memory.
func (s *Store) Namesakes(name, except string) (ids []string) {
	for _, sb := range all(&s.index, s.index.sandboxes) {
		if !sb.Corrupt && sb.Name == name && sb.ID != except {
			ids = append(ids, sb.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// listDeleted skips the sandboxes that the caller has already listed as live.
func (s *Store) listDeleted(ctx context.Context, f Filter, live map[string]bool) ([]Sandbox, error) {
	var out []Sandbox
	err := s.eachDeleted(ctx, func(tx *bolt.Tx, id string, _ []byte) bool {
		if live[id] || !isKept(tx, id) {
			return true
		}
		if sb := (loader{tx, s.corrupt.add}).sandbox(id, nil, nil); f.selects(sb.Spec) {
			out = append(out, *sb)
		}
		return true
	})
	return out, err
}

// isKept reports whether the history of a deleted sandbox is readable, which it is until a purge starts. The caller has checked that id is
// not live.
func isKept(tx *bolt.Tx, id string) bool {
	return get(tx, bucketDeletedAt, []byte(id)) != nil && hasRecord(tx, id)
}

// hasRecord reports whether id is known: from its create until its purge starts.
func hasRecord(tx *bolt.Tx, id string) bool {
	return (get(tx, bucketConfig, []byte(id)) != nil || get(tx, bucketDesired, []byte(id)) != nil) && get(tx, bucketUnproven, []byte(id)) == nil
}

// DeletedBefore returns at most limit IDs of sandboxes that were deleted more than age before m, sorted, including those of unfinished
// purges. Errors: ErrUnavailable.
func (s *Store) DeletedBefore(ctx context.Context, m clockjump.Moment, age time.Duration, limit int) ([]string, error) {
	var ids []string
	err := s.eachDeleted(ctx, func(_ *bolt.Tx, id string, at []byte) bool {
		if len(ids) >= limit {
			return false
		}
		if nanos, err := decodeInt(at); err != nil {
			s.corrupt.add(Corrupt{Bucket: bucketDeletedAt, Key: id, SandboxID: id, Err: err})
		} else if m.Age(fromNanos(nanos)) > age {
			ids = append(ids, id)
		}
		return true
	})
	return ids, err
}

// eachDeleted calls fn for each entry of sandbox-deleted-at until fn returns false, 256 in a transaction.
func (s *Store) eachDeleted(ctx context.Context, fn func(tx *bolt.Tx, id string, at []byte) bool) error {
	for from, more := "", true; more; {
		err := s.view(ctx, func(tx *bolt.Tx) error {
			n := 0
			more = false
			for k, v := range records(tx, bucketDeletedAt, []byte(from)) {
				if more = n == maxRead; more {
					from = string(k)
				}
				if n++; more || !fn(tx, string(k), v) {
					break
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
