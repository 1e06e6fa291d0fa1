package store

import (
	"context"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Events returns the events of a sandbox that are newer than sequence after, in order, at most limit or 256 (limit < 1:
// 256). Nothing newer: empty, no error. after 0 is valid always. Errors: Refusals SANDBOX_NOT_FOUND and
// SANDBOX_EVENT_SEQUENCE_EXPIRED; ErrDataLoss when the next event does not decode (those before it are returned by
// an earlier call; the way past it is its own sequence as after); ErrUnavailable.
func (s *Store) Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error) {
	if limit < 1 || limit > maxRead {
		limit = maxRead
	}
	var events []*agboxv1.SandboxEvent
	_, live := s.index.sandbox(id)
	err := s.view(ctx, func(tx *bolt.Tx) error {
		if !live && !isKept(tx, id) {
			return sandboxNotFound(id)
		}
		b := tx.Bucket([]byte(prefixEvents + id))
		if b == nil {
			return corruptOrPurged(tx, id)
		}
		if err := checkAnchor(b, id, after); err != nil {
			return err
		}
		var err error
		events, err = loader{tx, s.corrupt.add}.eventsAfter(b, id, after, limit)
		return err
	})
	return events, err
}

// corruptOrPurged says why there are no events: every sandbox has one until it is purged.
func corruptOrPurged(tx *bolt.Tx, id string) error {
	if !hasRecord(tx, id) {
		return sandboxNotFound(id)
	}
	return corruptSandbox(id)
}

func checkAnchor(b *bolt.Bucket, id string, after uint64) error {
	if after == 0 {
		return nil
	}
	c := b.Cursor()
	first, _ := c.First()
	last, _ := c.Last()
	oldest, err := decodeInt(first)
	if err != nil {
		return corruptSandbox(id)
	}
	newest, err := decodeInt(last)
	if err != nil {
		return corruptSandbox(id)
	}
	if after > newest || after+1 < oldest {
		return sequenceExpired(id, after, oldest)
	}
	return nil
}

func (l loader) eventsAfter(b *bolt.Bucket, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error) {
	var events []*agboxv1.SandboxEvent
	if after == math.MaxUint64 {
		return nil, nil
	}
	c := b.Cursor()
	for k, v := c.Seek(encodeInt(after + 1)); k != nil && len(events) < limit; k, v = c.Next() {
		ev, err := l.event(id, k, v)
		if err != nil && len(events) > 0 {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// noSequence is greater than every sequence.
const noSequence uint64 = math.MaxUint64

// oomWalk looks from the newest event back for an exec of the present run that the OOM killer ended.
type oomWalk struct {
	sandboxID    string
	since        time.Time // the run's start by the host's clock
	before       uint64    // the next page is of events older than this sequence
	restarted    bool      // a restart was passed: what is older may belong to the run before
	over, killed bool
}

// page looks at no more than maxRead events.
func (w *oomWalk) page(l loader) {
	n := 0
	l.walkBack(w.sandboxID, 1, w.before, func(ev *agboxv1.SandboxEvent) bool {
		w.before = ev.GetSequence()
		w.killed = !w.beginsRun(ev) && l.endedByOOM(w.sandboxID, ev)
		w.over = w.over || w.killed
		n++
		return !w.over && n < maxRead
	})
	w.over = w.over || n < maxRead
}

// beginsRun ends the walk at an event from before the run. No exec ends between the acceptance of a create or resume
// and the start of the container. SANDBOX_RESTARTED however is recorded after the start that it tells of, and an exec
// that was waiting may have ended in between; only there the time decides.
func (w *oomWalk) beginsRun(ev *agboxv1.SandboxEvent) bool {
	w.over = ev.GetEventType() == agboxv1.EventType_SANDBOX_ACCEPTED ||
		w.restarted && ev.GetOccurredAt().AsTime().Before(w.since)
	w.restarted = w.restarted || ev.GetEventType() == agboxv1.EventType_SANDBOX_RESTARTED
	return w.over
}

func (l loader) endedByOOM(id string, ev *agboxv1.SandboxEvent) bool {
	execID := ev.GetExec().GetExecId()
	if execID == "" || !endsActivity(ev) {
		return false
	}
	var end storev1.ExecEnd
	return l.execEnd(id, execID, &end) == nil && end.GetOomKilled()
}
