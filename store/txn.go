package store

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// txn is what one request of a group sees and stages. It sees what earlier requests of the group have changed, but not
// what it has staged itself. Nothing is applied unless the request returns nil, so it may fail at any point.
type txn struct {
	tx    *bolt.Tx
	index *index // published
	group facts  // changes by earlier requests of the group
	now   time.Time
	limit int64         // of the events of a sandbox; below 1: none
	note  func(Corrupt) // takes records that do not decode

	ops     []op
	changes facts
	touched []touch
	ticks   []string // sandboxes with new events
	purged  []string // sandboxes whose history went

	op            string // of its request
	agentsTouched []string
	agentTicks    []string // agents with new events
	agentsGone    []string
	drain         *drainChange
}

// op is one staged change of a bucket.
type op struct {
	kind   opKind
	bucket string
	key    []byte
	value  []byte
}

type opKind int

const (
	opPut opKind = iota
	opDelete
	opDropBucket
)

// touch is what OnCommit hooks are told.
type touch struct{ sandboxID, execID string }

// live returns a draft of a live sandbox; nil when it is not live. It is the caller's to change and to keep.
func (t *txn) live(id string) *Sandbox {
	sb, ok := t.group.sandboxes[id]
	if !ok {
		sb = t.index.sandboxes[id] // the writer is the only one to change the index, so it needs no lock to read
	}
	if sb == nil {
		return nil
	}
	draft := *sb
	return &draft
}

// liveIDs returns the IDs of all live sandboxes in no order.
func (t *txn) liveIDs() []string {
	var ids []string
	for id := range t.index.sandboxes {
		if _, changed := t.group.sandboxes[id]; !changed {
			ids = append(ids, id)
		}
	}
	for id, sb := range t.group.sandboxes {
		if sb != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *txn) nameHolder(name string) string {
	if id, ok := t.group.names[name]; ok {
		return id
	}
	return t.index.names[name]
}

// sandbox returns a draft of a live sandbox whose record is readable. Errors: SANDBOX_NOT_FOUND; ErrDataLoss; and for
// a deleted one, gone.
func (t *txn) sandbox(id string, gone error) (*Sandbox, error) {
	sb := t.live(id)
	switch {
	case sb != nil && sb.Corrupt:
		return nil, corruptSandbox(id)
	case sb != nil:
		return sb, nil
	case isKept(t.tx, id):
		return nil, gone
	}
	return nil, sandboxNotFound(id)
}

// put stages a message. The error is the caller's to return.
func (t *txn) put(bucket, key string, m proto.Message) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	return t.stage(op{opPut, bucket, []byte(key), b})
}

func (t *txn) putInt(bucket, key string, v uint64) error {
	return t.stage(op{opPut, bucket, []byte(key), encodeInt(v)})
}

func (t *txn) delete(bucket, key string) error {
	return t.stage(op{kind: opDelete, bucket: bucket, key: []byte(key)})
}

// stage refuses what bbolt would refuse: when ops are applied, it is too late for an error.
func (t *txn) stage(o op) error {
	switch {
	case o.kind != opDropBucket && (len(o.key) == 0 || len(o.key) > bolt.MaxKeySize):
		return fmt.Errorf("key of %d bytes in %s: %w", len(o.key), o.bucket, errdefs.ErrInvalidArgument)
	case len(o.value) > maxValueBytes:
		return fmt.Errorf("record of %d bytes in %s: %w", len(o.value), o.bucket, errdefs.ErrInvalidArgument)
	}
	t.ops = append(t.ops, o)
	return nil
}

// maxValueBytes is far above what the API lets in (a gRPC message of 4 MiB) and far below bbolt's 2 GiB.
const maxValueBytes = 64 << 20

// append is stageEvent for an event that the table of states allows. Errors: sandboxstate.ErrIllegal.
func (t *txn) append(sb *Sandbox, ev *agboxv1.SandboxEvent) error {
	if err := sandboxstate.Check(sb.State, ev.GetEventType(), ev.GetSandboxState()); err != nil {
		return fmt.Errorf("append an event to sandbox %s: %w", sb.ID, err)
	}
	return t.stageEvent(sb, ev)
}

// stageEvent stages the next event of sb: the store's fields are filled, the draft is advanced, its history bounded.
func (t *txn) stageEvent(sb *Sandbox, ev *agboxv1.SandboxEvent) error {
	ev.Sequence = sb.LastSequence + 1
	ev.SandboxId = sb.ID
	ev.EventId = fmt.Sprintf("%s-%d", sb.ID, ev.Sequence)
	ev.OccurredAt = timestamppb.New(t.now) // the true time, even if the clock was set back since the last event
	b, err := encode(ev)
	if err != nil {
		return err
	}
	if sb.advance(ev) {
		if err := t.putInt(bucketState, sb.ID, ev.Sequence); err != nil {
			return err
		}
	}
	t.ticks = append(t.ticks, sb.ID)
	if err := t.stage(op{opPut, prefixEvents + sb.ID, encodeInt(ev.Sequence), b}); err != nil {
		return err
	}
	return t.trim(sb)
}

// keep stages the draft as what the index holds, and tells the hooks.
func (t *txn) keep(sb *Sandbox, execID string) {
	sb.IdleSince = sb.idle(t.agentNow)
	t.changes.sandboxes[sb.ID] = sb
	t.touched = append(t.touched, touch{sb.ID, execID})
}

// apply writes what was staged into the group's transaction. An error here is bbolt's and ends the whole group.
func (t *txn) apply() error {
	for _, o := range t.ops {
		if err := o.apply(t.tx); err != nil {
			return fmt.Errorf("write to %s: %w", o.bucket, err)
		}
	}
	t.group.merge(t.changes)
	return nil
}

func (o op) apply(tx *bolt.Tx) error {
	name := []byte(o.bucket)
	if o.kind == opPut {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		b.FillPercent = fillOf(o.bucket)
		return b.Put(o.key, o.value)
	}
	b := tx.Bucket(name)
	if b == nil {
		return nil
	}
	if o.kind == opDropBucket {
		return tx.DeleteBucket(name)
	}
	return b.Delete(o.key)
}
