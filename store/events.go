package store

import (
	"context"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Cursor is a place in the events of one sandbox.
type Cursor struct {
	// After is the sequence of the last event that was read; 0: none.
	After uint64
	// GapsTo is the newest sequence of a replay that began at 0: up to it, events that the history limit dropped in the
	// meantime are not missed. 0 for whoever began at another anchor.
	GapsTo uint64
}

// Events returns the events of a sandbox that are newer than sequence after, in order, at most limit or 256 (limit < 1:
// 256). Nothing newer: empty, no error. after 0 is valid always, and returns what is left where the history limit has
// dropped events. Errors: Refusals SANDBOX_NOT_FOUND, and SANDBOX_EVENT_SEQUENCE_EXPIRED when after is beyond the
// newest, or an event newer than it may have been dropped; ErrDataLoss when the next event does not decode (those before
// it are returned by an earlier call; the way past it is its own sequence as after); ErrUnavailable.
//
// The oldest_sequence of SANDBOX_EVENT_SEQUENCE_EXPIRED is the first event from which on nothing is missing. It is there
// to be read: as an anchor it is valid, and so is the one below it, which delivers it too. 0 delivers what is left of
// the time before.
func (s *Store) Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error) {
	return s.EventsAfter(ctx, id, Cursor{After: after}, limit)
}

// EventsAfter is Events for readers of several pages. Errors as there; SANDBOX_EVENT_SEQUENCE_EXPIRED also when events
// after c.GapsTo were dropped before they were read.
func (s *Store) EventsAfter(ctx context.Context, id string, c Cursor, limit int) ([]*agboxv1.SandboxEvent, error) {
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
		l := loader{tx, s.corrupt.add}
		if err := l.checkCursor(b, id, c); err != nil {
			return err
		}
		var err error
		events, err = l.eventsAfter(b, id, c.After, limit)
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

func (l loader) checkCursor(b *bolt.Bucket, id string, c Cursor) error {
	if c.After == 0 {
		return nil
	}
	last, _ := b.Cursor().Last()
	newest, err := decodeInt(last)
	if err != nil {
		return corruptSandbox(id)
	}
	trimmed := l.trimmed(id)
	if c.After > newest || c.After < trimmed && c.GapsTo < trimmed {
		return sequenceExpired(id, c.After, trimmed+1)
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
	sandboxID string
	since     time.Time // the run's start by the host's clock
	before    uint64    // the next page is of events older than this sequence
	// accepted: a resume was passed, and what the sandbox was before it is not known yet.
	accepted bool
	// byTime: a restart or a resume was passed: what is older may belong to the run before.
	byTime       bool
	over, killed bool
}

// page looks at no more than maxRead events.
func (w *oomWalk) page(l loader) {
	n := 0
	l.walkBack(w.sandboxID, 1, w.before, func(ev *agboxv1.SandboxEvent) bool {
		w.before = ev.GetSequence()
		w.killed = !w.beginsRun(ev) && l.endedByOOM(w.sandboxID, ev)
		if isRebuilt(ev) && !w.over { // its execs' events are lost, their ends are not
			w.killed, w.over = l.oomSince(w.sandboxID, w.since), true
		}
		w.over = w.over || w.killed
		n++
		return !w.over && n < maxRead
	})
	w.over = w.over || n < maxRead
}

// beginsRun ends the walk at an event from before the run. No exec ends between a stop and the start of the container. But
// SANDBOX_RESTARTED is recorded after the start that it tells of, and an exec that was waiting may have ended in between; and
// what was frozen, or about to be, goes on with the run that it was in, unless it was demoted. There the time decides.
func (w *oomWalk) beginsRun(ev *agboxv1.SandboxEvent) bool {
	before := w.accepted && ev.GetSandboxState() != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	w.over = before && !mayThaw(ev) || w.byTime && ev.GetOccurredAt().AsTime().Before(w.since)
	resumed := ev.GetEventType() == agboxv1.EventType_SANDBOX_ACCEPTED
	w.accepted = resumed || w.accepted && !before
	w.byTime = w.byTime || resumed || ev.GetEventType() == agboxv1.EventType_SANDBOX_RESTARTED
	return w.over
}

// mayThaw reports whether a resume after ev, the last event with a state before it, can have let the same run go on.
func mayThaw(ev *agboxv1.SandboxEvent) bool {
	switch ev.GetSandboxState() {
	case agboxv1.SandboxState_SANDBOX_STATE_READY: // the pause was turned back
		return true
	case agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		return ev.GetSandboxPhase().GetReason() != reasonDemoted
	}
	return false
}

func (l loader) endedByOOM(id string, ev *agboxv1.SandboxEvent) bool {
	execID := ev.GetExec().GetExecId()
	if execID == "" || !endsActivity(ev) {
		return false
	}
	var end storev1.ExecEnd
	return l.execEnd(id, execID, &end) == nil && end.GetOomKilled()
}
