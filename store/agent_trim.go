package store

import (
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Limits on an agent's history. Beyond them the oldest turns are dropped whole, as long as the current turn is not reached; then the
// oldest part of the current turn. One transaction decides a cut: truncated_through is the highest unreadable sequence, and
// AGENT_TRUNCATED records the cut. The agent's next transactions remove the dropped events from the file.
const (
	maxAgentEvents = 10_000
	maxAgentBytes  = 32 << 20
	// cutInTurn is the share of the limits kept by a cut inside the current turn. Below 1, so that cuts are rare.
	cutInTurn = 0.875
	// sweepBatch limits the events removed from the file in one transaction, unless the transaction adds more than half as many: then it
	// removes twice as many as it adds.
	sweepBatch = 1000
)

// trimHistory cuts a history that exceeds the limits, appends the event about it, and sweeps. The caller has staged all appended events.
func (d *agentDraft) trimHistory() {
	if w := (cutWalk{agentDraft: d}); !w.fits(1) {
		d.cut(w.find())
	}
	d.sweep()
}

// cutWalk finds the place of a cut, from the oldest event to the newest.
type cutWalk struct {
	*agentDraft
	at     cutPlace  // after the newest event walked
	inTurn *cutPlace // where a cut inside the current turn would end
}

// cutPlace is where a cut would end, and what it would drop.
type cutPlace struct{ through, events, bytes, turns uint64 }

func (d *agentDraft) cut(place *cutPlace) {
	if place == nil {
		return // all events are new: the next transaction cuts
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
		d.repeatCheckpoint(seq)
	}
	d.stageEvents()
}

// repeatCheckpoint appends a copy of the newest checkpoint, which the cut drops.
func (d *agentDraft) repeatCheckpoint(seq uint64) {
	key := encodeInt(seq)
	ev, err := d.agentEvent(d.ID)(key, get(d.tx, prefixAgentEvents+d.ID, key))
	if err != nil {
		d.Status.CheckpointSequence = 0 // agentEvent has noted the damage, and there is nothing to repeat
		return
	}
	d.append(&agboxv1.AgentEvent{
		EventType: ev.GetEventType(),
		Details:   &agboxv1.AgentEvent_Checkpoint{Checkpoint: proto.CloneOf(ev.GetCheckpoint())},
	})
}

// find returns the first place before a turn where the rest is within the limits; else a place in the current turn; else, because one
// transaction alone can exceed the limits, the end of all events stored before it.
func (w *cutWalk) find() *cutPlace {
	for k, v := range records(w.tx, prefixAgentEvents+w.ID, encodeInt(w.Status.GetTruncatedThrough()+1)) {
		seq, err := decodeInt(k)
		if err != nil || w.dropped[seq] {
			continue
		}
		if ev, err := w.agentEvent(w.ID)(k, v); err == nil && beginsTurn(ev) {
			if w.fits(1) && w.at.through != 0 {
				return &w.at
			}
			w.at.turns++
		}
		w.at.events, w.at.bytes, w.at.through = w.at.events+1, w.at.bytes+uint64(len(v)), seq
		if w.inTurn == nil && w.fits(cutInTurn) {
			place := w.at
			w.inTurn = &place
		}
	}
	if w.inTurn == nil && w.at.through != 0 {
		return &w.at
	}
	return w.inTurn
}

// fits reports whether a cut here leaves at most the given share of the limits.
func (w *cutWalk) fits(share float64) bool {
	st := w.Status
	return float64(st.GetEvents()-w.at.events) <= share*maxAgentEvents && float64(st.GetEventBytes()-w.at.bytes) <= share*maxAgentBytes
}

// beginsTurn reports whether ev is the user's message that starts a turn.
func beginsTurn(ev *agboxv1.AgentEvent) bool {
	return ev.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED && ev.GetMessage().GetRole() == roleUser
}

// sweep stages the removal of some dropped events from the file.
func (d *agentDraft) sweep() {
	n, most := 0, max(sweepBatch, 2*d.staged)
	for k := range records(d.tx, prefixAgentEvents+d.ID, nil) {
		seq, err := decodeInt(k)
		if err != nil || seq > d.Status.GetTruncatedThrough() || n == most {
			return
		}
		d.deleteNumbered(prefixAgentEvents+d.ID, seq)
		n++
	}
}
