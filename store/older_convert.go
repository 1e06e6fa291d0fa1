package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store/internal/txlog"
)

// Texts of the events that an adoption adds.
const (
	codeExecLost = "EXEC_LOST"

	cutOffCreate = "the older daemon ended before the sandbox was ready, and agboxd does not continue its create: create it again"
	lostExec     = "the older daemon that ran the command has ended, so its result is unknown; it may still run"
)

// conversion reads the records of an older daemon and writes those of agboxd. It guesses nothing: a record that does not decode, or that
// contradicts another, ends it with an error that names the record.
type conversion struct {
	old   *bolt.Tx
	put   func(op) error
	path  string
	now   time.Time
	execs map[string]string // sandbox IDs by exec ID
	live  int
}

func (c *conversion) refuse(bucket, key, format string, args ...any) error {
	return notAdopted(c.path, "record %q of bucket %s: %s", key, bucket, fmt.Sprintf(format, args...))
}

func (c *conversion) run(ctx context.Context) error {
	ids := map[string]bool{}
	err := c.old.ForEach(func(name []byte, b *bolt.Bucket) error {
		bucket := string(name)
		for _, prefix := range olderPrefixes {
			if id, ok := strings.CutPrefix(bucket, prefix); ok {
				ids[id] = true
			}
		}
		if bucket == bucketConfig || bucket == bucketDeletedAt {
			for k := range records(c.old, bucket, nil) {
				ids[string(k)] = true
			}
		}
		return c.copyBucket(ctx, bucket, b)
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.sandbox(id); err != nil {
			return err
		}
	}
	return nil
}

// copyBucket checks and copies the records of a bucket. It leaves out a bucket's sequence, which agboxd does not use.
func (c *conversion) copyBucket(ctx context.Context, bucket string, b *bolt.Bucket) error {
	if err := c.put(op{Kind: txlog.MakeBucket, Bucket: bucket}); err != nil {
		return err
	}
	return b.ForEach(func(k, v []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if v == nil {
			return c.refuse(bucket, string(k), "it is a bucket")
		}
		v, err := c.checked(bucket, string(k), v)
		if err != nil {
			return err
		}
		return c.put(putOp(bucket, k, v))
	})
}

// checked returns the value to copy. It completes the request of an exec, whose IDs the daemon may have chosen.
func (c *conversion) checked(bucket, key string, v []byte) ([]byte, error) {
	var err error
	switch id, isEvents := strings.CutPrefix(bucket, prefixEvents); {
	case isEvents:
		var ev agboxv1.SandboxEvent
		n, bad := decodeInt([]byte(key))
		if bad != nil {
			return nil, c.refuse(bucket, fmt.Sprintf("%x", key), "%v", bad)
		}
		key = fmt.Sprint(n)
		if err = decode(v, &ev); err == nil && (ev.GetSequence() != n || ev.GetSandboxId() != id) {
			return nil, c.refuse(bucket, key, "it says that it is event %d of sandbox %q", ev.GetSequence(), ev.GetSandboxId())
		}
	case strings.HasPrefix(bucket, prefixExecConfig):
		return c.request(bucket, key, v)
	case bucket == bucketConfig:
		err = decode(v, &agboxv1.CreateSpec{})
	default:
		_, err = decodeInt(v)
	}
	if err != nil {
		return nil, c.refuse(bucket, key, "%v", err)
	}
	return v, nil
}

func (c *conversion) request(bucket, execID string, v []byte) ([]byte, error) {
	id := strings.TrimPrefix(bucket, prefixExecConfig)
	var req agboxv1.CreateExecRequest
	if err := decode(v, &req); err != nil {
		return nil, c.refuse(bucket, execID, "%v", err)
	}
	if req.GetExecId() != "" && req.GetExecId() != execID || req.GetSandboxId() != "" && req.GetSandboxId() != id {
		return nil, c.refuse(bucket, execID, "it says that it is exec %q of sandbox %q", req.GetExecId(), req.GetSandboxId())
	}
	if other := c.execs[execID]; other != "" {
		return nil, c.refuse(bucket, execID, "sandbox %q has an exec of this ID too", other)
	}
	c.execs[execID] = id
	req.ExecId, req.SandboxId = execID, id
	return encode(&req)
}

// set writes a record of agboxd.
func (c *conversion) set(bucket, key string, m proto.Message) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	return c.put(putOp(bucket, []byte(key), b))
}

func (c *conversion) setInt(bucket, key string, n uint64) error {
	return c.put(putOp(bucket, []byte(key), encodeInt(n)))
}

// sandbox writes what agboxd needs of one sandbox.
func (c *conversion) sandbox(id string) error {
	h := newOlderHistory()
	l := loader{c.old, func(Corrupt) {}} // copyBucket has refused what does not decode
	for k, v := range records(c.old, prefixEvents+id, nil) {
		ev, err := l.event(id)(k, v)
		if err != nil {
			return err
		}
		h.add(ev)
	}
	if err := c.consistent(id, h); err != nil {
		return err
	}
	if h.state == agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED {
		if err := c.append(id, h, &agboxv1.SandboxEvent{
			EventType: agboxv1.EventType_SANDBOX_ACCEPTED, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_PENDING,
		}); err != nil {
			return err
		}
	}
	if err := c.execsOf(id, h); err != nil {
		return err
	}
	if h.creates() {
		if err := c.append(id, h, &agboxv1.SandboxEvent{
			EventType: agboxv1.EventType_SANDBOX_FAILED, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_FAILED,
			Details: &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: &agboxv1.SandboxPhaseDetails{
				ErrorCode: codeCreateFailed, ErrorMessage: cutOffCreate,
			}},
		}); err != nil {
			return err
		}
	}
	return c.derived(id, h)
}

// consistent refuses records that belong to no sandbox or contradict its history.
func (c *conversion) consistent(id string, h *olderHistory) error {
	isDeleted := get(c.old, bucketDeletedAt, []byte(id)) != nil
	switch {
	case get(c.old, bucketSandboxID, []byte(id)) == nil:
		return c.refuse(bucketSandboxID, id, "the ID is not reserved, and there are records of the sandbox")
	case get(c.old, bucketConfig, []byte(id)) == nil:
		return c.refuse(bucketConfig, id, "it is missing, and there are records of the sandbox")
	case isDeleted && !h.isDeleted():
		return c.refuse(bucketDeletedAt, id, "the events say that the sandbox is %s", h.state)
	}
	return nil
}

// derived writes the records that follow from the history.
func (c *conversion) derived(id string, h *olderHistory) error {
	var spec agboxv1.CreateSpec
	if err := decode(get(c.old, bucketConfig, []byte(id)), &spec); err != nil {
		return err
	}
	if err := c.set(bucketDesired, id, h.desired(c.now)); err != nil {
		return err
	}
	if err := c.setInt(bucketState, id, h.runStart); err != nil {
		return err
	}
	if p := h.progress(&spec); p != nil {
		if err := c.set(bucketProgress, id, p); err != nil {
			return err
		}
	}
	if h.trimmed > 0 {
		if err := c.setInt(bucketTrimmed, id, h.trimmed); err != nil {
			return err
		}
	}
	switch {
	case !h.isDeleted():
		c.live++
	case get(c.old, bucketDeletedAt, []byte(id)) == nil:
		return c.setInt(bucketDeletedAt, id, uint64(h.changedAt.UnixNano()))
	}
	return nil
}

// append adds an event to a history.
func (c *conversion) append(id string, h *olderHistory, ev *agboxv1.SandboxEvent) error {
	ev.SandboxId, ev.Sequence, ev.OccurredAt = id, h.last+1, timestamppb.New(c.now)
	ev.EventId = fmt.Sprintf("%s-%d", id, ev.GetSequence())
	h.add(ev)
	return c.set(prefixEvents+id, string(encodeInt(ev.GetSequence())), ev)
}

// execsOf writes the records of the execs. One without an end is lost with the daemon that ran it.
func (c *conversion) execsOf(id string, h *olderHistory) error {
	for k := range records(c.old, prefixExecConfig+id, nil) {
		execID := string(k)
		e := h.execs[execID]
		if e == nil {
			e = &olderExec{}
		}
		if e.end == nil {
			if err := c.lose(id, execID, h, e); err != nil {
				return err
			}
		}
		if e.started == 0 || e.started >= e.end.GetSequence() { // its first event was dropped
			e.started = e.end.GetSequence() - 1
		}
		if e.started == 0 {
			return c.refuse(prefixExecConfig+id, execID, "its end is the first event of the sandbox")
		}
		created, err := decodeInt(get(c.old, bucketExecID, k))
		if err != nil {
			created = uint64(max(e.startedAt, e.end.GetEndedAt(), 0))
			if err := c.setInt(bucketExecID, execID, created); err != nil {
				return err
			}
		}
		d := newExec(&agboxv1.CreateExecRequest{}).Desired
		d.CreatedAt, d.StartedSequence = int64(created), e.started
		for _, r := range []struct {
			bucket string
			record proto.Message
		}{
			{bucketExecRefs, &storev1.ExecRef{SandboxId: id}}, {prefixExecDesired + id, d}, {prefixExecStatus + id, e.end},
		} {
			if err := c.set(r.bucket, execID, r.record); err != nil {
				return err
			}
		}
	}
	return nil
}

// lose ends an exec that has no end. The history of a deleted sandbox is complete, so it gets no event.
func (c *conversion) lose(id, execID string, h *olderHistory, e *olderExec) error {
	e.end = &storev1.ExecEnd{
		State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ErrorCode: codeExecLost, ErrorMessage: lostExec, Sequence: h.last,
	}
	if h.isDeleted() {
		return nil
	}
	err := c.append(id, h, execEvent(agboxv1.EventType_EXEC_FAILED, &agboxv1.ExecEventDetails{
		ExecId: execID, ExecState: agboxv1.ExecState_EXEC_STATE_FAILED, ErrorCode: codeExecLost, ErrorMessage: lostExec,
	}))
	e.end.Sequence = h.last
	return err
}
