package store

import (
	"context"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// nextPrompt returns the prompt that ClaimPrompt would claim; nil: none waits.
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

// ClaimedPrompt returns the prompt that a BUSY agent works on; nil when the agent is not BUSY. Errors: AGENT_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) ClaimedPrompt(ctx context.Context, id string) (*storev1.AgentPrompt, error) {
	return viewAgent(ctx, s, id, func(a *Agent, l loader) (*storev1.AgentPrompt, error) {
		_, p, err := l.claimedPrompt(a)
		return p, err
	})
}

// QueuedPrompts returns the waiting and the held prompts, in order, at most limit unless limit is 0. The claimed prompt is not among them.
// Errors: as ClaimedPrompt.
func (s *Store) QueuedPrompts(ctx context.Context, id string, limit int) ([]*storev1.AgentPrompt, error) {
	return viewAgent(ctx, s, id, func(a *Agent, l loader) (list []*storev1.AgentPrompt, err error) {
		l.eachPrompt(id, func(_ uint64, p *storev1.AgentPrompt) bool {
			if p.GetPromptId() != a.Status.GetPromptId() {
				list = append(list, p)
			}
			return limit == 0 || len(list) < limit
		})
		return list, nil
	})
}

// viewAgent calls fn with the agent's stored records in one read transaction.
func viewAgent[T any](ctx context.Context, s *Store, id string, fn func(a *Agent, l loader) (T, error)) (T, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (out T, err error) {
		if !hasAgent(tx, id) {
			return out, agentNotFound(id)
		}
		l := loader{tx, s.corrupt.add}
		a := l.agent(id)
		if a.Corrupt {
			return out, corruptAgent(id)
		}
		return fn(a, l)
	})
}
