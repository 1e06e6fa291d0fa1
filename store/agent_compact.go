package store

import (
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Snapshots of a part are superseded by the next one. They go when their message is completed, or its turn is cut off.

// compact drops the superseded snapshots of a message of the present incarnation: those appended in this request, then,
// unless the message began in it, those that are stored.
func (d *agentDraft) compact(messageID string) {
	seen := map[uint32]bool{}
	for i, ev := range slices.Backward(d.events) {
		switch {
		case !d.isOf(ev, messageID):
		case ev.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED:
			return
		case d.superseded(ev, seen):
			d.events[i] = nil
		}
	}
	b := d.tx.Bucket([]byte(prefixAgentEvents + d.ID))
	if b == nil {
		return
	}
	d.compactStored(b.Cursor(), messageID, seen)
}

func (d *agentDraft) compactStored(c *bolt.Cursor, messageID string, seen map[uint32]bool) {
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		ev, err := d.stored(k, v)
		switch {
		case err != nil, d.dropped[ev.GetSequence()]:
		case ev.GetSequence() <= d.Status.GetTruncatedThrough(), ev.GetIncarnation() != d.Status.GetIncarnation():
			return
		case !d.isOf(ev, messageID):
		case ev.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED:
			return
		case d.superseded(ev, seen):
			d.dropped[ev.GetSequence()] = true
			d.forget(k, v)
		}
	}
}

// superseded reports whether ev, looked at from the newest back, is a snapshot that a newer one replaces.
func (d *agentDraft) superseded(ev *agboxv1.AgentEvent, seen map[uint32]bool) bool {
	p := ev.GetPart()
	if p == nil {
		return false
	}
	known := seen[p.GetPart()]
	seen[p.GetPart()] = true
	return known
}

// isOf reports whether ev is of a message of the present incarnation: others may have used the ID too.
func (d *agentDraft) isOf(ev *agboxv1.AgentEvent, messageID string) bool {
	return ev != nil && ev.GetIncarnation() == d.Status.GetIncarnation() && messageOf(ev) == messageID
}

// messageOf is the ID of the message that ev is of; empty: of none.
func messageOf(ev *agboxv1.AgentEvent) string {
	if p := ev.GetPart(); p != nil {
		return p.GetMessageId()
	}
	return ev.GetMessage().GetMessageId()
}

// compactOpen compacts the message that was not completed, if there is one. It stays so: that marks it as interrupted.
func (d *agentDraft) compactOpen() {
	last := d.lastOfMessages()
	if last != nil && last.GetEventType() != agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED {
		d.compact(messageOf(last))
	}
}

// lastOfMessages is the newest event of a message that the present incarnation has said: the user's may come in between.
func (d *agentDraft) lastOfMessages() (last *agboxv1.AgentEvent) {
	look := func(ev *agboxv1.AgentEvent) bool {
		if id := messageOf(ev); id != "" && ev.GetIncarnation() == d.Status.GetIncarnation() && !strings.HasPrefix(id, promptMessage) {
			last = ev
		}
		return last == nil && (ev == nil || ev.GetIncarnation() == d.Status.GetIncarnation())
	}
	for _, ev := range slices.Backward(d.events) {
		if !look(ev) {
			return last
		}
	}
	loader{d.tx, d.note}.agentEventsBack(d.Agent, look)
	return last
}

func (d *agentDraft) stored(k, v []byte) (*agboxv1.AgentEvent, error) {
	return loader{d.tx, d.note}.agentEvent(d.ID, k, v)
}
