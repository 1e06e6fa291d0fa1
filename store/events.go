package store

import (
	"context"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Cursor is a position in the events of one sandbox.
type Cursor struct {
	// After is the sequence of the last event read; 0: none.
	After uint64
	// GapsTo is the newest sequence at the start of a replay from 0: the reader accepts that the history limit drops events up to it
	// during the replay. 0 for a reader that started elsewhere.
	GapsTo uint64
}

// Events returns the events of a sandbox with a sequence above after, in order, at most limit or 256 (limit < 1: 256). Nothing newer:
// empty, no error. after 0 is always valid and returns the kept events, even if the history limit has dropped others. Errors: Refusals
// SANDBOX_NOT_FOUND, and SANDBOX_EVENT_SEQUENCE_EXPIRED when after is beyond the newest event, or an event above it may have been dropped;
// ErrDataLoss when the next event does not decode (an earlier call returns those before it; pass its sequence as after to skip it);
// ErrUnavailable.
//
// The oldest_sequence of SANDBOX_EVENT_SEQUENCE_EXPIRED is the oldest event from which on none is missing. It is valid as after, and so is
// the sequence below it, which returns that event too. 0 also returns the kept events before it.
func (s *Store) Events(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error) {
	return s.EventsAfter(ctx, id, Cursor{After: after}, limit)
}

// EventsAfter is Events for readers of several pages. Errors: as Events; SANDBOX_EVENT_SEQUENCE_EXPIRED also when events after c.GapsTo
// were dropped before the reader read them.
func (s *Store) EventsAfter(ctx context.Context, id string, c Cursor, limit int) ([]*agboxv1.SandboxEvent, error) {
	live := s.index.sandbox(id) != nil
	return viewed(ctx, s, func(tx *bolt.Tx) ([]*agboxv1.SandboxEvent, error) {
		if !live && !isKept(tx, id) {
			return nil, sandboxNotFound(id)
		}
		switch { // every sandbox has an event until it is purged
		case tx.Bucket([]byte(prefixEvents+id)) != nil:
		case hasRecord(tx, id):
			return nil, corruptSandbox(id)
		default:
			return nil, sandboxNotFound(id)
		}
		l := loader{tx, s.corrupt.add}
		if err := l.checkCursor(id, c); err != nil {
			return nil, err
		}
		return page(tx, prefixEvents+id, c.After, limit, math.MaxInt, l.event(id))
	})
}

// NewestEvents returns the newest events of a sandbox, the newest first, at most limit or 256. Events that do not decode are left out. Errors:
// Refusal SANDBOX_NOT_FOUND; ErrUnavailable.
func (s *Store) NewestEvents(ctx context.Context, id string, limit int) ([]*agboxv1.SandboxEvent, error) {
	live := s.index.sandbox(id) != nil
	return viewed(ctx, s, func(tx *bolt.Tx) (events []*agboxv1.SandboxEvent, err error) {
		if !live && !isKept(tx, id) {
			return nil, sandboxNotFound(id)
		}
		l, left := loader{tx, s.corrupt.add}, min(limit, maxRead)
		for k, v := range recordsBack(tx, prefixEvents+id, noSequence) {
			if left--; left < 0 {
				break
			}
			if ev, err := l.event(id)(k, v); err == nil {
				events = append(events, ev)
			}
		}
		return events, nil
	})
}

func (l loader) checkCursor(id string, c Cursor) error {
	if c.After == 0 {
		return nil
	}
	newest, err := decodeInt(lastKey(l.tx, prefixEvents+id))
	if err != nil {
		return corruptSandbox(id)
	}
	trimmed := l.trimmed(id)
	if c.After > newest || c.After < trimmed && c.GapsTo < trimmed {
		return refuseSequence("sandbox", "SANDBOX_EVENT_SEQUENCE_EXPIRED", id, c.After, trimmed+1)
	}
	return nil
}

// noSequence is greater than every sequence.
const noSequence uint64 = math.MaxUint64

// oomWalk walks back from the newest event to find an exec of the current run that the OOM killer ended.
type oomWalk struct {
	sandboxID string
	since     time.Time // the run's start by the host's clock
	before    uint64    // the next page has events older than this sequence
	// accepted: the walk passed a resume and has not yet reached the sandbox's state before it.
	accepted bool
	// byTime: the walk passed a restart or a resume; older events may belong to an earlier run.
	byTime       bool
	over, killed bool
}

// page walks at most maxRead events.
func (w *oomWalk) page(l loader) {
	n := 0
	l.walkBack(w.sandboxID, 1, w.before, func(ev *agboxv1.SandboxEvent) bool {
		w.before = ev.GetSequence()
		w.killed = !w.beginsRun(ev) && l.endedByOOM(w.sandboxID, ev)
		if isRebuilt(ev) && !w.over { // its exec events are lost, the ends of its execs are not
			w.killed, w.over = l.oomSince(w.sandboxID, w.since), true
		}
		w.over = w.over || w.killed
		n++
		return !w.over && n < maxRead
	})
	w.over = w.over || n < maxRead
}

// beginsRun ends the walk at an event from before the run. No exec ends between a stop and the start of the container. There are two
// exceptions, where the time of the event decides: SANDBOX_RESTARTED is recorded after the start that it reports, so a waiting exec may
// have ended in between; and a frozen sandbox, or one about to be frozen, continues its run on resume unless it was demoted.
func (w *oomWalk) beginsRun(ev *agboxv1.SandboxEvent) bool {
	before := w.accepted && ev.GetSandboxState() != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	w.over = before && !mayThaw(ev) || w.byTime && ev.GetOccurredAt().AsTime().Before(w.since)
	resumed := ev.GetEventType() == agboxv1.EventType_SANDBOX_ACCEPTED
	w.accepted = resumed || w.accepted && !before
	w.byTime = w.byTime || resumed || ev.GetEventType() == agboxv1.EventType_SANDBOX_RESTARTED
	return w.over
}

// mayThaw reports whether a resume after ev, the last event with a state before it, can have continued the same run.
func mayThaw(ev *agboxv1.SandboxEvent) bool {
	switch ev.GetSandboxState() {
	case agboxv1.SandboxState_SANDBOX_STATE_READY: // the pause was withdrawn
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
	end, err := l.execEnd(id, execID)
	return err == nil && end.GetOomKilled()
}

// oomSince reports whether an exec of a sandbox that ended at t or later, by the host's clock, was ended by the OOM killer.
func (l loader) oomSince(id string, t time.Time) bool {
	for k := range records(l.tx, prefixExecStatus+id, nil) {
		if end, err := l.execEnd(id, string(k)); err == nil && end.GetOomKilled() && end.GetEndedAt() >= t.UnixNano() {
			return true
		}
	}
	return false
}
