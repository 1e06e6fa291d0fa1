package store

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The bound on the events of a live sandbox. With each event that is appended beyond it, the oldest events of execs go
// in the same transaction; nothing is renumbered, and all other events stay. So do two that the store itself needs:
// the one at which the idle clock began, and the newest end of an exec by the OOM killer, which explains a container's
// sticky OOM flag. sandbox-trimmed is the highest sequence that went: what is newer has no gap.
const (
	// trimBatch and trimLooks bound what one event may make go, and how many events are looked at for it: a limit that
	// was lowered is worked off over the next events.
	trimBatch = 64
	trimLooks = 256
	// trimKeep of the newest events stay, or half the limit of them, also when other events alone exceed the limit: who
	// follows needs a moment to read them.
	trimKeep = 32
)

// history is what is known of the events of a live sandbox without reading them: O(1), derived at load.
type history struct {
	dropped  uint64 // how many events have gone
	trimmed  uint64 // highest sequence of them
	scanned  uint64 // up to here nothing is left to go; at load, trimmed
	oomEnd   uint64 // sequence of the newest end by the OOM killer up to scanned; 0: none
	activity uint64 // sequence of the event at which idleFrom is, unless that is zero
}

// SetEventHistoryLimit changes Options.EventHistoryLimit, at any time. A lower one takes effect with the next events of
// each sandbox; what has gone does not come back with a higher one.
func (s *Store) SetEventHistoryLimit(n int) { s.historyLimit.Store(int64(n)) }

// trim stages the removal of the oldest events of execs, as far as sb has too many events. It sees what earlier
// requests have appended, not this one: the newest event never goes.
func (t *txn) trim(sb *Sandbox) error {
	excess := int64(sb.LastSequence-sb.history.dropped) - t.limit
	if t.limit < 1 || excess <= 0 {
		return nil
	}
	b := t.tx.Bucket([]byte(prefixEvents + sb.ID))
	if b == nil {
		return nil
	}
	w := trimWalk{txn: t, sb: sb, room: min(excess, trimBatch), keep: uint64(min(trimKeep, t.limit/2))}
	if err := w.run(b.Cursor()); err != nil {
		return fmt.Errorf("trim events of sandbox %s: %w", sb.ID, err)
	}
	if w.highest <= sb.history.trimmed {
		return nil
	}
	sb.history.trimmed = w.highest
	return t.putInt(bucketTrimmed, sb.ID, w.highest)
}

// trimWalk goes from the oldest event that was never looked at upwards.
type trimWalk struct {
	*txn
	sb      *Sandbox
	room    int64  // how many events may go
	keep    uint64 // how many of the newest may not
	highest uint64 // of those that go
}

func (w *trimWalk) run(c *bolt.Cursor) error {
	h := &w.sb.history
	looks := 0
	for k, v := c.Seek(encodeInt(h.scanned + 1)); k != nil && looks < trimLooks && w.room > 0; k, v = c.Next() {
		seq, err := decodeInt(k)
		if err != nil || seq+w.keep > w.sb.LastSequence || seq == h.activity && !w.sb.idleFrom.IsZero() {
			return nil
		}
		ev, err := loader{w.tx, w.note}.event(w.sb.ID, k, v)
		if err == nil && isExecEvent(ev.GetEventType()) { // what does not decode stays
			if err := w.look(ev); err != nil {
				return err
			}
		}
		h.scanned = seq
		looks++
	}
	return nil
}

// look takes one event of an exec.
func (w *trimWalk) look(ev *agboxv1.SandboxEvent) error {
	h := &w.sb.history
	seq := ev.GetSequence()
	if !(loader{w.tx, w.note}).endedByOOM(w.sb.ID, ev) {
		w.highest = max(w.highest, seq)
		return w.drop(seq)
	}
	older := h.oomEnd
	h.oomEnd = seq
	if older == 0 {
		return nil
	}
	w.highest = max(w.highest, older)
	return w.drop(older)
}

func (w *trimWalk) drop(seq uint64) error {
	w.room--
	w.sb.history.dropped++
	return w.stage(op{kind: opDelete, bucket: prefixEvents + w.sb.ID, key: encodeInt(seq)})
}

// history counts what of sb has gone: everything up to the mark but what stayed.
func (l loader) history(sb *Sandbox) {
	h := &sb.history
	h.trimmed = l.trimmed(sb.ID)
	h.scanned = h.trimmed
	b := l.tx.Bucket([]byte(prefixEvents + sb.ID))
	if h.trimmed == 0 || b == nil {
		return
	}
	h.dropped = h.trimmed
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		seq, err := decodeInt(k)
		if err != nil || seq > h.trimmed {
			break
		}
		h.dropped--
		if ev, err := l.event(sb.ID, k, v); err == nil && isExecEvent(ev.GetEventType()) {
			h.oomEnd = seq
		}
	}
}

// trimmed returns the highest sequence that has gone. When its record does not decode, the events tell: below the
// oldest of those without a gap.
func (l loader) trimmed(id string) uint64 {
	v := get(l.tx, bucketTrimmed, []byte(id))
	if v == nil {
		return 0
	}
	seq, err := decodeInt(v)
	if l.noted(bucketTrimmed, id, id, err) == nil {
		return seq
	}
	return l.beforeLastGap(id)
}

func (l loader) beforeLastGap(id string) uint64 {
	b := l.tx.Bucket([]byte(prefixEvents + id))
	if b == nil {
		return 0
	}
	c := b.Cursor()
	k, _ := c.Last()
	oldest, err := decodeInt(k)
	for k, _ = c.Prev(); k != nil && err == nil; k, _ = c.Prev() {
		var seq uint64
		if seq, err = decodeInt(k); err != nil || seq+1 != oldest {
			break
		}
		oldest = seq
	}
	return oldest - min(oldest, 1)
}
