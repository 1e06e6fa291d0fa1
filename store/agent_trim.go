package store

import (
	"fmt"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The bound on an agent's history. Beyond it the oldest turns go, whole, as far as the present turn leaves any; then the
// oldest part of that turn. A cut is decided in one transaction: truncated_through says up to where nothing is readable
// any more, and AGENT_TRUNCATED tells. What is below leaves the file with the next transactions of the agent.
const (
	maxAgentEvents = 10_000
	maxAgentBytes  = 32 << 20
	// cutInTurn: when the present turn is too large by itself, so much of the bound is left, so that the next cut is far.
	cutInTurn = 0.875
	// sweepBatch bounds the events that leave the file in one transaction, unless more come in: then twice as many go.
	sweepBatch = 1000
)

// trimHistory cuts when there is too much, tells it, and sweeps. All that was appended is staged.
func (d *agentDraft) trimHistory() error {
	b := d.tx.Bucket([]byte(prefixAgentEvents + d.ID))
	if b == nil {
		return nil
	}
	if d.tooMuch(1) {
		if err := d.cut(b.Cursor()); err != nil {
			return fmt.Errorf("trim history of agent %s: %w", d.ID, err)
		}
	}
	return d.sweep(b.Cursor())
}

// tooMuch reports whether more is kept than a share of the bounds.
func (d *agentDraft) tooMuch(share float64) bool {
	return float64(d.Status.GetEvents()) > share*maxAgentEvents || float64(d.Status.GetEventBytes()) > share*maxAgentBytes
}

// cutWalk looks for the place of a cut, from the oldest event up.
type cutWalk struct {
	*agentDraft
	events, bytes uint64 // looked at so far
	turns         uint64
	last          uint64    // sequence of the newest event looked at
	inTurn        *cutPlace // where the oldest part of the present turn would end
}

type cutPlace struct{ through, events, bytes, turns uint64 }

func (d *agentDraft) cut(c *bolt.Cursor) error {
	w := cutWalk{agentDraft: d}
	place := w.find(c)
	if place == nil {
		return nil // everything is new: the next transaction cuts
	}
	st := d.Status
	st.TruncatedThrough = place.through
	st.Events -= place.events
	st.EventBytes -= min(place.bytes, st.GetEventBytes())
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_TRUNCATED,
		Details: &agboxv1.AgentEvent_Truncation{Truncation: &agboxv1.AgentTruncation{
			ThroughSequence: place.through, Events: place.events, Turns: place.turns, Reason: "the history has reached its bound",
		}},
	})
	if seq := st.GetCheckpointSequence(); seq != 0 && seq <= place.through {
		if err := d.repeatCheckpoint(seq); err != nil {
			return err
		}
	}
	return d.stageEvents()
}

// repeatCheckpoint appends the newest checkpoint, which would be cut off, again.
func (d *agentDraft) repeatCheckpoint(seq uint64) error {
	key := encodeInt(seq)
	ev, err := d.stored(key, get(d.tx, prefixAgentEvents+d.ID, key))
	if err != nil {
		d.Status.CheckpointSequence = 0 // it was noted, and nothing can be repeated
		return nil                      //nolint:nilerr // as said
	}
	d.append(&agboxv1.AgentEvent{
		EventType: ev.GetEventType(),
		Details:   &agboxv1.AgentEvent_Checkpoint{Checkpoint: proto.CloneOf(ev.GetCheckpoint())},
	})
	return nil
}

// find returns the first place before a turn from which on what is left is within the bounds; else one in the present turn;
// else, for what comes in one transaction may be too much by itself, the end of all that was stored before.
func (w *cutWalk) find(c *bolt.Cursor) *cutPlace {
	for k, v := c.Seek(encodeInt(w.Status.GetTruncatedThrough() + 1)); k != nil; k, v = c.Next() {
		seq, err := decodeInt(k)
		if err != nil || w.dropped[seq] {
			continue
		}
		if ev, err := w.stored(k, v); err == nil && beginsTurn(ev) {
			if w.fits(1) && w.last != 0 {
				return w.place()
			}
			w.turns++
		}
		w.events, w.bytes, w.last = w.events+1, w.bytes+uint64(len(v)), seq
		if w.inTurn == nil && w.fits(cutInTurn) {
			w.inTurn = w.place()
		}
	}
	if w.inTurn == nil && w.last != 0 {
		return w.place()
	}
	return w.inTurn
}

// fits reports whether a cut here leaves no more than a share of the bounds.
func (w *cutWalk) fits(share float64) bool {
	st := w.Status
	return float64(st.GetEvents()-w.events) <= share*maxAgentEvents && float64(st.GetEventBytes()-w.bytes) <= share*maxAgentBytes
}

func (w *cutWalk) place() *cutPlace { return &cutPlace{w.last, w.events, w.bytes, w.turns} }

// beginsTurn: a turn begins with the user's message.
func beginsTurn(ev *agboxv1.AgentEvent) bool {
	return ev.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED && ev.GetMessage().GetRole() == roleUser
}

// sweep stages that some of what was cut leaves the file.
func (d *agentDraft) sweep(c *bolt.Cursor) error {
	n, most := 0, max(sweepBatch, 2*d.staged)
	for k, _ := c.First(); k != nil && n < most; k, _ = c.Next() {
		seq, err := decodeInt(k)
		if err != nil || seq > d.Status.GetTruncatedThrough() {
			return nil
		}
		if err := d.deleteNumbered(prefixAgentEvents+d.ID, seq); err != nil {
			return err
		}
		n++
	}
	return nil
}
