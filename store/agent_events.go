package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

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
	if limit < 1 || limit > maxRead {
		limit = maxRead
	}
	var events []*agboxv1.AgentEvent
	err := s.viewAgent(ctx, id, func(a *Agent, l loader) error {
		through := a.Status.GetTruncatedThrough()
		if after > a.Status.GetLastSequence() || after > 0 && after < through {
			return agentSequenceExpired(id, after, through+1)
		}
		var err error
		events, err = l.agentEventsAfter(id, max(after, through), limit)
		return err
	})
	return events, err
}

func (l loader) agentEventsAfter(id string, after uint64, limit int) ([]*agboxv1.AgentEvent, error) {
	b := l.tx.Bucket([]byte(prefixAgentEvents + id))
	if b == nil {
		return nil, nil
	}
	var events []*agboxv1.AgentEvent
	bytes := 0
	c := b.Cursor()
	for k, v := c.Seek(encodeInt(after + 1)); k != nil && len(events) < limit; k, v = c.Next() {
		if bytes += len(v); bytes > maxReadBytes && len(events) > 0 {
			break
		}
		ev, err := l.agentEvent(id, k, v)
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

// agentEventsBack calls fn with the kept events, from the newest to the oldest, until fn returns false. It notes and skips events that do
// not decode.
func (l loader) agentEventsBack(a *Agent, fn func(*agboxv1.AgentEvent) bool) {
	b := l.tx.Bucket([]byte(prefixAgentEvents + a.ID))
	if b == nil {
		return
	}
	c := b.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		seq, err := decodeInt(k)
		if err != nil || seq <= a.Status.GetTruncatedThrough() {
			return
		}
		if ev, err := l.agentEvent(a.ID, k, v); err == nil && !fn(ev) {
			return
		}
	}
}

// agentEvent decodes one stored event. Errors: ErrDataLoss.
func (l loader) agentEvent(id string, key, value []byte) (*agboxv1.AgentEvent, error) {
	seq, err := decodeInt(key)
	if err != nil {
		return nil, l.noted(prefixAgentEvents+id, fmt.Sprintf("%x", key), "", err)
	}
	var ev agboxv1.AgentEvent
	err = decode(value, &ev)
	if err == nil && (ev.GetSequence() != seq || ev.GetAgentId() != id) {
		err = fmt.Errorf("it says that it is event %d of another place: %w", ev.GetSequence(), errdefs.ErrDataLoss)
	}
	if err != nil {
		return nil, l.noted(prefixAgentEvents+id, strconv.FormatUint(seq, 10), "", err)
	}
	return &ev, nil
}

// Transitions returns the state changes of an agent with a number above after, in order, at most limit or 256 (limit < 1: 256). The newest
// 1,000 are kept. Errors: AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) Transitions(ctx context.Context, id string, after uint64, limit int) ([]*agboxv1.AgentTransition, error) {
	if limit < 1 || limit > maxRead {
		limit = maxRead
	}
	var list []*agboxv1.AgentTransition
	err := s.viewAgent(ctx, id, func(_ *Agent, l loader) error {
		b := l.tx.Bucket([]byte(prefixAgentTransitions + id))
		if b == nil || after+1 == 0 {
			return nil
		}
		c := b.Cursor()
		for k, v := c.Seek(encodeInt(after + 1)); k != nil && len(list) < limit; k, v = c.Next() {
			tr, err := l.transition(id, k, v)
			if err != nil {
				return err
			}
			list = append(list, tr)
		}
		return nil
	})
	return list, err
}

func (l loader) transition(id string, key, value []byte) (*agboxv1.AgentTransition, error) {
	n, err := decodeInt(key)
	tr := &agboxv1.AgentTransition{}
	if err == nil {
		err = decode(value, tr)
	}
	if err == nil && tr.GetNumber() != n {
		err = fmt.Errorf("it says that it is number %d: %w", tr.GetNumber(), errdefs.ErrDataLoss)
	}
	return tr, l.noted(prefixAgentTransitions+id, fmt.Sprint(n), "", err)
}

// WatchAgent is Watch for the events of an agent. The store closes the channel when the agent is removed.
func (s *Store) WatchAgent(id string) (changed <-chan struct{}, stop func()) {
	sub := &subscriber{ch: make(chan struct{}, 1)}
	s.agents.add(id, sub)
	return sub.ch, func() { s.agents.remove(id, sub) }
}

// OnAgentCommit adds a hook as OnCommit does. The store calls it with the ID of each agent whose committed change a pass may act on: its
// intent, queue, state or removal. A commit of events alone only notifies watchers.
func (s *Store) OnAgentCommit(fn func(agentID string)) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	s.agentHooks = append(s.agentHooks[:len(s.agentHooks):len(s.agentHooks)], fn)
}

// publishAgents calls the hooks and notifies the watchers of the agents that a request changed.
func (s *Store) publishAgents(t *txn) {
	if t.drain != nil {
		s.draining.Store(t.drain.record)
	}
	s.hookMu.Lock()
	hooks := s.agentHooks
	s.hookMu.Unlock()
	for _, id := range t.agentsTouched {
		for _, hook := range hooks {
			hook(id)
		}
	}
	for _, id := range t.agentTicks {
		s.agents.tick(id)
	}
	for _, id := range t.agentsGone {
		s.agents.purged(id)
	}
}

// hasAgent reports whether id is known: from its create until its removal is complete.
func hasAgent(tx *bolt.Tx, id string) bool {
	return get(tx, bucketAgentConfig, []byte(id)) != nil || get(tx, bucketAgentDesired, []byte(id)) != nil
}
