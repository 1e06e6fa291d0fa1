package store

import (
	"context"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// dumpBytes bounds one part of a dump, but for a single record that is larger.
const dumpBytes = 1 << 20

// AgentIDs returns the IDs of all agents in no order, those included whose records do not decode. From memory.
func (s *Store) AgentIDs() []string {
	all := s.index.allAgents()
	ids := make([]string, 0, len(all))
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids
}

// AgentReserved reports whether there is or was an agent of that ID. Errors: ErrUnavailable; ctx's.
func (s *Store) AgentReserved(ctx context.Context, id string) (reserved bool, err error) {
	err = s.view(ctx, func(tx *bolt.Tx) error {
		reserved = get(tx, bucketAgentID, []byte(id)) != nil
		return nil
	})
	return reserved, err
}

// ReserveAgents keeps the IDs of agents of the past from being used again. The mirror is not told: it has them. Errors:
// ErrUnavailable; ctx's.
func (s *Store) ReserveAgents(ctx context.Context, list []*storev1.RemovedAgent) error {
	return s.update(ctx, func(t *txn) error {
		t.fromMirror = true
		for _, r := range list {
			id := r.GetAgentId()
			if id == "" || len(id) > maxAgentIDBytes || get(t.tx, bucketAgentID, []byte(id)) != nil {
				continue
			}
			if err := t.putInt(bucketAgentID, id, uint64(max(r.GetCreatedAt(), 0))); err != nil {
				return err
			}
		}
		return nil
	})
}

// AgentMark names what is on record of an agent; see AgentChange. 0: there is none. Errors: ErrUnavailable; ctx's.
func (s *Store) AgentMark(ctx context.Context, id string) (mark uint64, err error) {
	err = s.view(ctx, func(tx *bolt.Tx) error {
		mark = agentMark(tx, id)
		return nil
	})
	return mark, err
}

// DumpAgent calls fn with all that is on record of an agent at one moment, as the parts of one change. What fn is handed dies
// with the call. An agent that is not there has none. Errors: fn's; ErrUnavailable; ctx's.
func (s *Store) DumpAgent(ctx context.Context, id string, fn func(*storev1.AgentChange) error) error {
	return s.view(ctx, func(tx *bolt.Tx) error {
		d := &agentDump{part: &storev1.AgentChange{AgentId: id, After: agentMark(tx, id), More: true}, fn: fn}
		if d.part.After == 0 {
			return nil
		}
		for kind, bucket := range agentSingles {
			if v := get(tx, bucket, []byte(id)); v != nil {
				if err := d.add(kind, nil, v); err != nil {
					return err
				}
			}
		}
		for kind, prefix := range agentLists {
			if err := d.list(kind, tx.Bucket([]byte(prefix+id))); err != nil {
				return err
			}
		}
		d.part.More = false
		return fn(d.part)
	})
}

// agentDump collects records until they make a part.
type agentDump struct {
	part  *storev1.AgentChange
	bytes int
	fn    func(*storev1.AgentChange) error
}

func (d *agentDump) list(kind storev1.AgentRecordKind, b *bolt.Bucket) error {
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := d.add(kind, k, v); err != nil {
			return err
		}
	}
	return nil
}

func (d *agentDump) add(kind storev1.AgentRecordKind, key, value []byte) error {
	if d.bytes += len(key) + len(value); d.bytes > dumpBytes && len(d.part.Ops) > 0 {
		if err := d.fn(d.part); err != nil {
			return err
		}
		d.part.Ops, d.bytes = d.part.Ops[:0], len(key)+len(value)
	}
	d.part.Ops = append(d.part.Ops, &storev1.AgentOp{Kind: kind, Key: key, Value: value})
	return nil
}
