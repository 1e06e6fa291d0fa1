package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/agbox/agbox/internal/host/clockjump"
)

// List returns the sandboxes that f selects, newest first, then by ID, or in the opposite order. Live ones come from memory, deleted ones from
// the file, at most 256 in a transaction. Corrupt sandboxes are included; without config they have no labels. Errors: ErrUnavailable.
func (s *Store) List(ctx context.Context, f Filter) ([]Sandbox, error) {
	var found []*Sandbox
	live := map[string]bool{} // filled only if deleted ones are wanted
	for _, sb := range all(&s.index, s.index.sandboxes) {
		if f.IncludeDeleted {
			live[sb.ID] = true
		}
		if f.selects(sb) {
			found = append(found, sb)
		}
	}
	if f.IncludeDeleted {
		deleted, err := s.listDeleted(ctx, f, live)
		if err != nil {
			return nil, err
		}
		found = append(found, deleted...)
	}
	slices.SortFunc(found, func(a, b *Sandbox) int { return f.compare(a.position(), b.position()) })
	if f.Limit > 0 && len(found) > f.Limit {
		found = found[:f.Limit]
	}
	out := make([]Sandbox, len(found))
	for i, sb := range found {
		if out[i] = *sb; !f.IncludeDeleted || live[sb.ID] {
			out[i] = sb.copied()
		}
	}
	return out, nil
}

func (sb *Sandbox) position() Position { return Position{sb.CreatedAt, sb.ID} }

// compare orders positions as List does.
func (f Filter) compare(a, b Position) int {
	order := cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	if f.OldestFirst {
		return -order
	}
	return order
}

func (f Filter) selects(sb *Sandbox) bool {
	spec, gateway := sb.Spec, sb.Spec.GetGateway()
	return hasLabels(spec.GetLabels(), f.Labels) && (f.GatewayOwner == "" || gateway.GetOwner() == f.GatewayOwner) &&
		(f.GatewayTemplate == "" || gateway.GetTemplate() == f.GatewayTemplate) && hasLabels(gateway.GetMetadata(), f.GatewayMetadata) &&
		(f.After == nil || f.compare(sb.position(), *f.After) > 0)
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
func (s *Store) listDeleted(ctx context.Context, f Filter, live map[string]bool) ([]*Sandbox, error) {
	var out []*Sandbox
	err := s.eachDeleted(ctx, func(tx *bolt.Tx, id string, _ []byte) bool {
		if live[id] || !isKept(tx, id) {
			return true
		}
		if sb := (loader{tx, s.corrupt.add}).sandbox(id, nil, nil); f.selects(sb) {
			out = append(out, sb)
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
