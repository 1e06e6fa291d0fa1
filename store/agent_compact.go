package store

import (
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// A snapshot of a part is superseded by the next one. Superseded snapshots are dropped when their message is completed or its turn is cut
// off.

// compact drops the superseded snapshots of a message of the current incarnation: those that this request appended, then the stored ones,
// unless this request also appended the start of the message.
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
	for k, v := range recordsBack(d.tx, prefixAgentEvents+d.ID, noSequence) {
		ev, err := d.agentEvent(d.ID)(k, v)
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

// superseded reports whether a newer snapshot replaces ev. The caller walks the events from the newest to the oldest.
func (d *agentDraft) superseded(ev *agboxv1.AgentEvent, seen map[uint32]bool) bool {
	p := ev.GetPart()
	if p == nil {
		return false
	}
	known := seen[p.GetPart()]
	seen[p.GetPart()] = true
	return known
}

// isOf reports whether ev belongs to the message in the current incarnation; older incarnations may have used the same ID.
func (d *agentDraft) isOf(ev *agboxv1.AgentEvent, messageID string) bool {
	return ev != nil && ev.GetIncarnation() == d.Status.GetIncarnation() && messageOf(ev) == messageID
}

// messageOf returns the ID of the message that ev belongs to; empty: none.
func messageOf(ev *agboxv1.AgentEvent) string {
	if p := ev.GetPart(); p != nil {
		return p.GetMessageId()
	}
	return ev.GetMessage().GetMessageId()
}

// compactOpen compacts the last message if it was never completed. It stays incomplete, which marks it as interrupted.
func (d *agentDraft) compactOpen() {
	last := d.lastOfMessages()
	if last != nil && last.GetEventType() != agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED {
		d.compact(messageOf(last))
	}
}

// lastOfMessages returns the newest message event of the current incarnation. It skips the user's messages, which can be interleaved.
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
	d.agentEventsBack(d.Agent, look)
	return last
}
