package store

import (
	"context"
	"math"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// maxReadBytes limits one read of agent events, which can be large. A single larger event is returned alone.
const maxReadBytes = 1 << 20

// AgentEvents returns the events of an agent with a sequence above after, in order: at most limit or 256 (limit < 1: 256), and fewer if
// they would exceed 1 MiB. Superseded snapshots are missing. The result is empty, without an error, only if there is no newer event. after
// 0 is always valid and returns the events that are kept. Errors: Refusals AGENT_NOT_FOUND, and AGENT_EVENT_SEQUENCE_EXPIRED when after is
// beyond the newest event, or events above it were dropped; ErrDataLoss when the next event does not decode (pass its sequence as after to
// skip it); ErrUnavailable.
func (s *Store) AgentEvents(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error) {
	return viewAgent(ctx, s, id, func(a *Agent, l loader) ([]*agboxv1.AgentEvent, error) {
		through := a.Status.GetTruncatedThrough()
		if after > a.Status.GetLastSequence() || after > 0 && after < through {
			return nil, refuseSequence("agent", "AGENT_EVENT_SEQUENCE_EXPIRED", id, after, through+1)
		}
		return page(l.tx, prefixAgentEvents+id, max(after, through), limit, maxReadBytes, l.agentEvent(id))
	})
}

// agentEventsBack calls fn with the kept events, from the newest to the oldest, until fn returns false. It notes and skips events that do
// not decode.
func (l loader) agentEventsBack(a *Agent, fn func(*agboxv1.AgentEvent) bool) {
	walkBack(l.tx, prefixAgentEvents+a.ID, a.Status.GetTruncatedThrough()+1, noSequence, l.agentEvent(a.ID), fn)
}

// agentEvent returns the decoder of the stored events of an agent.
func (l loader) agentEvent(id string) decoder[*agboxv1.AgentEvent] {
	return numbered(l, prefixAgentEvents+id, "", func(ev *agboxv1.AgentEvent, n uint64) error {
		return misplaced(ev.GetSequence() == n && ev.GetAgentId() == id, "it says that it is event %d of another place", ev.GetSequence())
	})
}

// Transitions returns the state changes of an agent with a number above after, in order, at most limit or 256 (limit < 1: 256). The newest
// 1,000 are kept. Errors: AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error) {
	return viewAgent(ctx, s, id, func(_ *Agent, l loader) ([]*agboxv1.AgentTransition, error) {
		return page(l.tx, prefixAgentTransitions+id, after, limit, math.MaxInt, l.transition(id))
	})
}

func (l loader) transition(id string) decoder[*agboxv1.AgentTransition] {
	return numbered(l, prefixAgentTransitions+id, "", func(tr *agboxv1.AgentTransition, n uint64) error {
		return misplaced(tr.GetNumber() == n, "it says that it is number %d", tr.GetNumber())
	})
}

// WatchAgent is Watch for the events of an agent. The store closes the channel when the agent is removed.
func (s *Store) WatchAgent(id string) (changed <-chan struct{}, stop func()) {
	return s.hub.watch(prefixAgentEvents + id)
}
