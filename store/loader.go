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

// required decodes a record that must exist; nil after an error.
func required[M proto.Message](l loader, bucket, key, sandboxID string) (M, error) {
	m, err := read[M](l.tx, bucket, key)
	return m, l.noted(bucket, key, sandboxID, err)
}

// optional is required for a record that may be missing and is then empty.
func optional[M proto.Message](l loader, bucket, key, sandboxID string) (M, error) {
	if get(l.tx, bucket, []byte(key)) == nil {
		var none M
		return newOf(none), nil
	}
	return required[M](l, bucket, key, sandboxID)
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
	sb.Spec, _ = required[*agboxv1.CreateSpec](l, bucketConfig, id, id)
	sb.Desired = l.desired(id)
	sb.Name = sb.Desired.GetName()
	// Nil when the record does not decode: continuing from an empty one would repeat actions.
	sb.Progress, _ = optional[*storev1.Progress](l, bucketProgress, id, id)
	found := l.state(sb)
	sb.Corrupt = sb.Spec == nil || sb.Desired == nil || sb.Progress == nil || !found
	return sb
}

func (l loader) desired(id string) *storev1.Desired {
	d, err := required[*storev1.Desired](l, bucketDesired, id, id)
	if err != nil {
		return nil
	}
	if d.GetGeneration() == 0 || d.GetRunState() < storev1.RunState_RUN_STATE_RUN || d.GetRunState() > storev1.RunState_RUN_STATE_PAUSE {
		_ = l.noted(bucketDesired, id, id, fmt.Errorf("no intent in it: %w", errdefs.ErrDataLoss))
		return nil
	}
	return d
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
	e := Exec{ID: execID, SandboxID: id}
	var errs [3]error
	e.Request, errs[0] = required[*agboxv1.CreateExecRequest](l, prefixExecConfig+id, execID, id)
	e.Desired, errs[1] = l.execDesired(id, execID)
	if get(l.tx, prefixExecStatus+id, []byte(execID)) != nil {
		e.End, errs[2] = l.execEnd(id, execID)
	}
	if err := errors.Join(errs[:]...); err != nil {
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

func (l loader) execDesired(id, execID string) (*storev1.ExecDesired, error) {
	d, err := read[*storev1.ExecDesired](l.tx, prefixExecDesired+id, execID)
	if err == nil && d.GetNonce() == "" {
		err = fmt.Errorf("no nonce in it: %w", errdefs.ErrDataLoss)
	}
	return d, l.noted(prefixExecDesired+id, execID, id, err)
}

func (l loader) execEnd(id, execID string) (*storev1.ExecEnd, error) {
	end, err := read[*storev1.ExecEnd](l.tx, prefixExecStatus+id, execID)
	if _, ok := endEvents[agboxv1.ExecState(end.GetState())]; err == nil && !ok {
		err = fmt.Errorf("no end in it: %w", errdefs.ErrDataLoss)
	}
	return end, l.noted(prefixExecStatus+id, execID, id, err)
}

// event returns the decoder of the stored events of a sandbox.
func (l loader) event(id string) decoder[*agboxv1.SandboxEvent] {
	return numbered(l, prefixEvents+id, id, func(ev *agboxv1.SandboxEvent, n uint64) error {
		return misplaced(ev.GetSequence() == n && ev.GetSandboxId() == id, "it says that it is event %d of another place", ev.GetSequence())
	})
}

// decoder decodes one record. Errors: ErrDataLoss; the record is then nil.
type decoder[R any] func(key, value []byte) (R, error)

// numbered returns the decoder of a bucket whose keys are numbers. It checks each record with its number.
func numbered[M proto.Message](l loader, bucket, sandboxID string, check func(m M, n uint64) error) decoder[M] {
	return func(key, value []byte) (M, error) {
		var none M
		n, err := decodeInt(key)
		if err != nil {
			return none, l.noted(bucket, fmt.Sprintf("%x", key), sandboxID, err)
		}
		m := newOf(none)
		if err = decode(value, m); err == nil {
			err = check(m, n)
		}
		if err != nil {
			return none, l.noted(bucket, strconv.FormatUint(n, 10), sandboxID, err)
		}
		return m, nil
	}
}

// misplaced returns an error with that text unless ok. Errors: ErrDataLoss.
func misplaced(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrDataLoss)
}
