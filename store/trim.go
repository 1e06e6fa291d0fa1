package store

import (
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Limits on the events of a live sandbox. When an event is appended beyond the limit, the oldest events of execs and of denied destinations
// are dropped in the same transaction; no event is renumbered, and all other events stay. Two events of execs stay, because the store needs
// them: the one that started the idle clock, and the newest end of an exec by the OOM killer, which explains a container's sticky OOM
// flag. sandbox-trimmed is the highest dropped sequence: there is no gap after it.
const (
	// trimBatch and trimLooks limit how many events one new event can drop, and how many are read for that: after a limit is lowered, the
	// next events reach it step by step.
	trimBatch = 64
	trimLooks = 256
	// trimKeep of the newest events stay, or half the limit of them if that is less, even when other events alone exceed the limit:
	// followers need a moment to read them.
	trimKeep = 32
)

// history is the state of a live sandbox's event history, so that trim need not read events: O(1), derived at load.
type history struct {
	dropped  uint64 // number of dropped events
	trimmed  uint64 // highest dropped sequence
	scanned  uint64 // up to here trim can drop nothing more; at load, trimmed
	oomEnd   uint64 // sequence of the newest end by the OOM killer up to scanned; 0: none
	activity uint64 // sequence of the event that set idleFrom, unless idleFrom is zero
}

// SetEventHistoryLimit changes Options.EventHistoryLimit, at any time. A lower limit takes effect with the next events of each sandbox; a
// higher one does not restore dropped events.
func (s *Store) SetEventHistoryLimit(n int) { s.historyLimit.Store(int64(n)) }

// trim stages the removal of the oldest transient events if sb has too many events. It sees the events of earlier requests but not of this one:
// the newest event is never dropped.
func (t *txn) trim(sb *Sandbox) {
	excess := int64(sb.LastSequence-sb.history.dropped) - t.limit
	if t.limit < 1 || excess <= 0 {
		return
	}
	w := trimWalk{txn: t, sb: sb, room: min(excess, trimBatch), keep: uint64(min(trimKeep, t.limit/2))}
	w.run()
	if w.highest > sb.history.trimmed {
		sb.history.trimmed = w.highest
		t.putInt(bucketTrimmed, sb.ID, w.highest)
	}
}

// trimWalk walks from the oldest event not yet scanned to newer ones.
type trimWalk struct {
	*txn
	sb      *Sandbox
	room    int64  // how many more events it may drop
	keep    uint64 // how many of the newest events it must keep
	highest uint64 // dropped sequence
}

func (w *trimWalk) run() {
	h := &w.sb.history
	looks := 0
	for k, v := range records(w.tx, prefixEvents+w.sb.ID, encodeInt(h.scanned+1)) {
		seq, err := decodeInt(k)
		if err != nil || looks == trimLooks || w.room <= 0 || seq+w.keep > w.sb.LastSequence || seq == h.activity && !w.sb.idleFrom.IsZero() {
			return
		}
		ev, err := w.event(w.sb.ID)(k, v)
		if err == nil && isTransient(ev.GetEventType()) { // an event that does not decode stays
			w.visit(ev)
		}
		h.scanned = seq
		looks++
	}
}

// visit drops the transient event ev. If the OOM killer caused this end of an exec, visit keeps ev and drops the previous such end instead.
func (w *trimWalk) visit(ev *agboxv1.SandboxEvent) {
	h := &w.sb.history
	seq := ev.GetSequence()
	if !w.endedByOOM(w.sb.ID, ev) {
		w.drop(seq)
		return
	}
	older := h.oomEnd
	h.oomEnd = seq
	if older != 0 {
		w.drop(older)
	}
}

func (w *trimWalk) drop(seq uint64) {
	w.highest = max(w.highest, seq)
	w.room--
	w.sb.history.dropped++
	w.deleteNumbered(prefixEvents+w.sb.ID, seq)
}

// history loads the history of sb: every sequence up to the mark that is not kept was dropped.
func (l loader) history(sb *Sandbox) {
	h := &sb.history
	h.trimmed = l.trimmed(sb.ID)
	h.scanned = h.trimmed
	h.dropped = h.trimmed
	for k, v := range records(l.tx, prefixEvents+sb.ID, nil) {
		seq, err := decodeInt(k)
		if err != nil || seq > h.trimmed {
			break
		}
		h.dropped--
		if ev, err := l.event(sb.ID)(k, v); err == nil && isExecEvent(ev.GetEventType()) {
			h.oomEnd = seq
		}
	}
}

// trimmed returns the highest dropped sequence. If its record does not decode, it derives one from the events: the sequence before the
// newest ones without a gap.
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
	oldest := uint64(0)
	for k := range recordsBack(l.tx, prefixEvents+id, noSequence) {
		seq, err := decodeInt(k)
		if err != nil || oldest != 0 && seq+1 != oldest {
			break
		}
		oldest = seq
	}
	return oldest - min(oldest, 1)
}
