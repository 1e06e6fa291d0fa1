package store

import (
	"context"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// NextPrompt returns the prompt that ClaimPrompt would claim; nil: none waits. Errors: AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) NextPrompt(ctx context.Context, id string) (*storev1.AgentPrompt, error) {
	var next *storev1.AgentPrompt
	err := s.viewAgent(ctx, id, func(a *Agent, l loader) error {
		_, next = l.nextPrompt(a)
		return nil
	})
	return next, err
}

func (l loader) nextPrompt(a *Agent) (n uint64, next *storev1.AgentPrompt) {
	l.eachPrompt(a.ID, func(m uint64, p *storev1.AgentPrompt) bool {
		if p.GetHeld() || p.GetPromptId() == a.Status.GetPromptId() {
			return true
		}
		n, next = m, p
		return false
	})
	return n, next
}

// ClaimedPrompt returns the prompt that a BUSY agent works on; nil when the agent is not BUSY. Errors: as NextPrompt.
func (s *Store) ClaimedPrompt(ctx context.Context, id string) (*storev1.AgentPrompt, error) {
	var p *storev1.AgentPrompt
	err := s.viewAgent(ctx, id, func(a *Agent, l loader) error {
		var err error
		_, p, err = l.claimedPrompt(a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// QueuedPrompts returns the waiting and the held prompts, in order, at most limit unless limit is 0. The claimed prompt is not among them.
// Errors: as NextPrompt.
func (s *Store) QueuedPrompts(ctx context.Context, id string, limit int) ([]*storev1.AgentPrompt, error) {
	var list []*storev1.AgentPrompt
	err := s.viewAgent(ctx, id, func(a *Agent, l loader) error {
		l.eachPrompt(id, func(_ uint64, p *storev1.AgentPrompt) bool {
			if p.GetPromptId() != a.Status.GetPromptId() {
				list = append(list, p)
			}
			return limit == 0 || len(list) < limit
		})
		return nil
	})
	return list, err
}

// viewAgent calls fn with the agent's stored records in one read transaction.
func (s *Store) viewAgent(ctx context.Context, id string, fn func(a *Agent, l loader) error) error {
	return s.view(ctx, func(tx *bolt.Tx) error {
		if !hasAgent(tx, id) {
			return agentNotFound(id)
		}
		l := loader{tx, s.corrupt.add}
		a := l.agent(id)
		if a.Corrupt {
			return corruptAgent(id)
		}
		return fn(a, l)
	})
}
