package store

import (
	"cmp"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/store/internal/txlog"
)

// txn is the transaction of one request of a group: its reads and its staged changes. It sees the changes of earlier requests of the
// group, but not its own. Nothing is applied unless the request returns nil and err is nil, so it may fail at any point.
type txn struct {
	loader
	index  *index // published
	group  facts  // changes by earlier requests of the group
	now    time.Time
	limit  int64  // on the events of a sandbox; below 1: none
	bootID string // of the host; empty: unknown

	ops     []op
	err     error // the first one of staging; the request then fails
	changes facts
	touched []Change
	drain   *drainChange
	op      string // of its request
}

// op is one staged change of a bucket, as the log records it.
type op = txlog.Op

func putOp(bucket string, key, value []byte) op {
	return op{Kind: txlog.Put, Bucket: bucket, Key: key, Value: value}
}

// Change is a committed change that a pass may act on: of the agent, of the exec or, if both are empty, of the sandbox itself. A change of an
// exec also adds an event to its sandbox unless it is only a cancel request. A commit that only adds events to an agent is no Change.
type Change struct{ SandboxID, ExecID, AgentID string }

// live returns a draft of a live sandbox, which the caller may change and keep; nil when it is not live.
func (t *txn) live(id string) *Sandbox {
	sb := latest(t.group.sandboxes, t.index.sandboxes, id) // only the writer changes the index, so it reads it without the lock
	if sb == nil {
		return nil
	}
	draft := *sb
	return &draft
}

// liveIDs returns the IDs of all live sandboxes, unordered.
func (t *txn) liveIDs() []string { return latestKeys(t.group.sandboxes, t.index.sandboxes) }

func (t *txn) nameHolder(name string) string { return latest(t.group.names, t.index.names, name) }

// sandbox returns a draft of a live sandbox whose records decode. Errors: SANDBOX_NOT_FOUND; ErrDataLoss; gone for a deleted one.
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

// put stages a message.
func (t *txn) put(bucket, key string, m proto.Message) {
	b, err := encode(m)
	if err != nil {
		t.fail(err)
		return
	}
	t.stage(putOp(bucket, []byte(key), b))
}

func (t *txn) putInt(bucket, key string, v uint64) {
	t.stage(putOp(bucket, []byte(key), encodeInt(v)))
}

func (t *txn) delete(bucket, key string) {
	t.stage(op{Kind: txlog.Delete, Bucket: bucket, Key: []byte(key)})
}

// stage refuses what bbolt would refuse, because an error while ops are applied would fail the whole group.
func (t *txn) stage(o op) {
	switch {
	case o.Kind != txlog.DropBucket && (len(o.Key) == 0 || len(o.Key) > bolt.MaxKeySize):
		t.fail(fmt.Errorf("key of %d bytes in %s: %w", len(o.Key), o.Bucket, errdefs.ErrInvalidArgument))
	case len(o.Value) > maxValueBytes:
		t.fail(fmt.Errorf("record of %d bytes in %s: %w", len(o.Value), o.Bucket, errdefs.ErrInvalidArgument))
	default:
		t.ops = append(t.ops, o)
	}
}

// fail makes the request fail with err, unless it fails with an earlier error.
func (t *txn) fail(err error) { t.err = cmp.Or(t.err, err) }

// maxValueBytes is far above what the API accepts (a gRPC message of 4 MiB) and far below bbolt's 2 GiB.
const maxValueBytes = 64 << 20

// append stages the next event of sb: it sets the store's fields, advances the draft, and trims its history. The request fails with
// sandboxstate.ErrIllegal if the state table does not allow it.
func (t *txn) append(sb *Sandbox, ev *agboxv1.SandboxEvent) {
	if err := sandboxstate.Check(sb.State, ev.GetEventType(), ev.GetSandboxState()); err != nil {
		t.fail(fmt.Errorf("append an event to sandbox %s: %w", sb.ID, err))
		return
	}
	ev.Sequence = sb.LastSequence + 1
	ev.SandboxId = sb.ID
	ev.EventId = fmt.Sprintf("%s-%d", sb.ID, ev.Sequence)
	ev.OccurredAt = timestamppb.New(t.now) // the true time, even if the clock was set back since the last event
	was := sb.State
	if sb.advance(ev) {
		t.count(sb.Desired.GetCaller(), usage{pending: pendingIn(sb.State) - pendingIn(was)})
		t.putInt(bucketState, sb.ID, ev.Sequence)
	}
	t.putNumbered(prefixEvents+sb.ID, ev.Sequence, ev)
	t.trim(sb)
}

// keep stages the draft for the index, and a call of the hooks.
func (t *txn) keep(sb *Sandbox, execID string) {
	sb.IdleSince = sb.idle(t.agentNow)
	t.changes.sandboxes[sb.ID] = sb
	t.touched = append(t.touched, Change{SandboxID: sb.ID, ExecID: execID})
}

// apply writes the staged ops into the group's transaction. An error comes from bbolt and fails the whole group.
func (t *txn) apply() error {
	for _, o := range t.ops {
		if err := apply(t.tx, o); err != nil {
			return fmt.Errorf("write to %s: %w", o.Bucket, err)
		}
	}
	t.group.merge(t.changes, false)
	return nil
}

// apply writes one operation. bbolt keeps a reference to the value until the commit.
func apply(tx *bolt.Tx, o op) error {
	name := []byte(o.Bucket)
	if o.Kind == txlog.Put || o.Kind == txlog.MakeBucket {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil || o.Kind == txlog.MakeBucket {
			return err
		}
		b.FillPercent = fillOf(o.Bucket)
		return b.Put(o.Key, o.Value)
	}
	b := tx.Bucket(name)
	if b == nil {
		return nil
	}
	if o.Kind == txlog.DropBucket {
		return tx.DeleteBucket(name)
	}
	return b.Delete(o.Key)
}
