package store

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// loader reads records in one transaction and reports those that do not decode to note.
type loader struct {
	tx   *bolt.Tx
	note func(Corrupt)
}

// message decodes a record that must exist.
func (l loader) message(bucket, key, sandboxID string, m proto.Message) error {
	return l.noted(bucket, key, sandboxID, decode(get(l.tx, bucket, []byte(key)), m))
}

// optional is message for a record that may be missing; m is then unchanged.
func (l loader) optional(bucket, key, sandboxID string, m proto.Message) error {
	if get(l.tx, bucket, []byte(key)) == nil {
		return nil
	}
	return l.message(bucket, key, sandboxID, m)
}

// noted converts an error of a record that must exist into ErrDataLoss and notes it.
func (l loader) noted(bucket, key, sandboxID string, err error) error {
	if err == nil {
		return nil
	}
	if !errdefs.IsDataLoss(err) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
	}
	l.note(Corrupt{Bucket: bucket, Key: key, SandboxID: sandboxID, Err: err})
	return fmt.Errorf("read %s of %s: %w", bucket, key, err)
}

func (l loader) time(bucket, id string) time.Time {
	n, err := decodeInt(get(l.tx, bucket, []byte(id)))
	if l.noted(bucket, id, id, err) != nil {
		return noTime
	}
	return fromNanos(n)
}

// sandbox reads the readable records of one sandbox, live or deleted.
func (l loader) sandbox(id string, activeExecs, agents []string) *Sandbox {
	sb := &Sandbox{ID: id, CreatedAt: l.time(bucketSandboxID, id), ActiveExecs: activeExecs, Agents: agents}
	if get(l.tx, bucketDeletedAt, []byte(id)) != nil {
		sb.DeletedAt = l.time(bucketDeletedAt, id)
	}
	var spec agboxv1.CreateSpec
	if l.message(bucketConfig, id, id, &spec) == nil {
		sb.Spec = &spec
	}
	sb.Desired = l.desired(id)
	sb.Name = sb.Desired.GetName()
	sb.Progress = l.progress(id)
	found := l.state(sb)
	sb.Corrupt = sb.Spec == nil || sb.Desired == nil || sb.Progress == nil || !found
	return sb
}

// progress returns nil when the record does not decode: continuing from an empty one would repeat actions.
func (l loader) progress(id string) *storev1.Progress {
	var p storev1.Progress
	if l.optional(bucketProgress, id, id, &p) != nil {
		return nil
	}
	return &p
}

func (l loader) desired(id string) *storev1.Desired {
	var d storev1.Desired
	if l.message(bucketDesired, id, id, &d) != nil {
		return nil
	}
	if d.GetGeneration() == 0 || d.GetRunState() < storev1.RunState_RUN_STATE_RUN || d.GetRunState() > storev1.RunState_RUN_STATE_PAUSE {
		_ = l.noted(bucketDesired, id, id, fmt.Errorf("no intent in it: %w", errdefs.ErrDataLoss))
		return nil
	}
	return &d
}

// activeExecs returns the sorted keys of exec-config that are not in exec-status.
func (l loader) activeExecs(id string) []string {
	ended := l.tx.Bucket([]byte(prefixExecStatus + id))
	var active []string
	for k := range records(l.tx, prefixExecConfig+id, nil) {
		if ended == nil || ended.Get(k) == nil {
			active = append(active, string(k))
		}
	}
	return active
}

// exec reads one exec. Errors: ErrDataLoss.
func (l loader) exec(id, execID string) (Exec, error) {
	e := Exec{ID: execID, SandboxID: id, Request: &agboxv1.CreateExecRequest{}, Desired: &storev1.ExecDesired{}}
	err := errors.Join(
		l.message(prefixExecConfig+id, execID, id, e.Request),
		l.execDesired(id, execID, e.Desired),
	)
	if get(l.tx, prefixExecStatus+id, []byte(execID)) != nil {
		e.End = &storev1.ExecEnd{}
		err = errors.Join(err, l.execEnd(id, execID, e.End))
	}
	if err != nil {
		return Exec{}, err
	}
	e.Anchor = l.anchor(e)
	return e, nil
}

// anchor returns the sequence of the newest event of e. If the history limit dropped that event and e has not ended, it returns the
// sandbox's newest sequence: the end follows it, and it stays valid as long as any event is kept.
func (l loader) anchor(e Exec) uint64 {
	started := e.Desired.GetStartedSequence()
	if e.End != nil {
		return e.End.GetSequence()
	}
	if started > l.trimmed(e.SandboxID) {
		return started
	}
	newest, _ := l.lastSequence(e.SandboxID)
	return max(started, newest)
}

func (l loader) execDesired(id, execID string, d *storev1.ExecDesired) error {
	err := decode(get(l.tx, prefixExecDesired+id, []byte(execID)), d)
	if err == nil && d.GetNonce() == "" {
		err = fmt.Errorf("no nonce in it: %w", errdefs.ErrDataLoss)
	}
	return l.noted(prefixExecDesired+id, execID, id, err)
}

func (l loader) execEnd(id, execID string, end *storev1.ExecEnd) error {
	err := decode(get(l.tx, prefixExecStatus+id, []byte(execID)), end)
	if _, ok := endEvents[agboxv1.ExecState(end.GetState())]; err == nil && !ok {
		err = fmt.Errorf("no end in it: %w", errdefs.ErrDataLoss)
	}
	return l.noted(prefixExecStatus+id, execID, id, err)
}

// event decodes one stored event. Errors: ErrDataLoss.
func (l loader) event(id string, key, value []byte) (*agboxv1.SandboxEvent, error) {
	ev := &agboxv1.SandboxEvent{}
	err := l.numbered(prefixEvents+id, id, key, value, ev, func(n uint64) error {
		return misplaced(ev.GetSequence() == n && ev.GetSandboxId() == id, "it says that it is event %d of another place", ev.GetSequence())
	})
	if err != nil {
		return nil, err
	}
	return ev, nil
}

// numbered decodes a record whose key is a number into m, and then checks it with the number. Errors: ErrDataLoss.
func (l loader) numbered(bucket, sandboxID string, key, value []byte, m proto.Message, check func(n uint64) error) error {
	n, err := decodeInt(key)
	if err != nil {
		return l.noted(bucket, fmt.Sprintf("%x", key), sandboxID, err)
	}
	if err = decode(value, m); err == nil {
		err = check(n)
	}
	return l.noted(bucket, strconv.FormatUint(n, 10), sandboxID, err)
}

// misplaced returns an error with that text unless ok. Errors: ErrDataLoss.
func misplaced(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrDataLoss)
}
