package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Queued is the position of a prompt in the queue.
type Queued struct {
	PromptID string
	// Ahead is the number of prompts delivered before it, including the claimed one.
	Ahead int
	// Sequence: the events of this prompt have higher sequences.
	Sequence uint64
}

// QueuePrompt appends a prompt to the agent's queue once: a repeat with the same ID and text writes nothing and returns the prompt's
// current position. Errors: Refusals AGENT_NOT_FOUND, AGENT_INVALID_STATE when the agent's delete was requested, PROMPT_ID_ALREADY_EXISTS
// when the text differs, and AGENT_PROMPTS_FULL beyond 1,000 waiting prompts; ErrInvalidArgument; ErrDataLoss; ErrUnavailable.
func (s *Store) QueuePrompt(ctx context.Context, id, promptID, text string) (Queued, error) {
	if err := checkID("prompt ID", promptID); err != nil || text == "" || !utf8.ValidString(text) {
		return Queued{}, errors.Join(fmt.Errorf("prompt of %d bytes, which must be UTF-8: %w", len(text), errdefs.ErrInvalidArgument), err)
	}
	var q Queued
	var known bool
	err := s.update(ctx, func(t *txn) error {
		d, err := t.agent(id)
		if err != nil {
			return err
		}
		if known, err = d.knows(promptID, text); known || err != nil {
			return err
		}
		q = Queued{PromptID: promptID, Ahead: d.ahead(), Sequence: d.Status.GetLastSequence()}
		if err := d.queue(promptID, text); err != nil {
			return err
		}
		d.save()
		return nil
	})
	if err == nil && known {
		return s.queued(ctx, id, promptID)
	}
	return q, err
}

// ahead returns the number of prompts that precede a new one.
func (a *Agent) ahead() int {
	if a.Status.GetPromptId() != "" {
		return a.Queued + 1
	}
	return a.Queued
}

// knows reports whether the prompt was accepted before.
func (d *agentDraft) knows(promptID, text string) (bool, error) {
	if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
		return false, agentBeingDeleted(d.ID)
	}
	if get(d.tx, prefixAgentPromptIDs+d.ID, []byte(promptID)) == nil {
		return false, nil
	}
	ref, err := d.promptRef(d.Agent, promptID)
	if err != nil {
		return false, err
	}
	if !bytes.Equal(ref.GetTextSha256(), hashOf(text)) {
		return false, refuse("agent_id", d.ID, "PROMPT_ID_ALREADY_EXISTS", errdefs.ErrAlreadyExists, "prompt_id %s already exists", promptID)
	}
	return true, nil
}

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// queue stages a new prompt.
func (d *agentDraft) queue(promptID, text string) error {
	if d.Queued >= maxPrompts {
		return promptsFull(d.Agent)
	}
	d.Status.Prompts++
	d.Queued++
	d.wake = true
	n := d.Status.GetPrompts()
	d.put(prefixAgentPromptIDs+d.ID, promptID, &storev1.AgentPromptRef{Number: n, TextSha256: hashOf(text)})
	d.putNumbered(prefixAgentPrompts+d.ID, n, &storev1.AgentPrompt{PromptId: promptID, Text: text, QueuedAt: d.now.UnixNano()})
	return nil
}

// queued returns the position of a prompt that was accepted before.
func (s *Store) queued(ctx context.Context, id, promptID string) (Queued, error) {
	return viewAgent(ctx, s, id, func(a *Agent, l loader) (Queued, error) {
		q := Queued{PromptID: promptID}
		ref, err := l.promptRef(a, promptID)
		if err != nil {
			return q, err
		}
		waits := false
		if a.Status.GetPromptId() != "" {
			q.Ahead++
		}
		l.eachPrompt(id, func(n uint64, p *storev1.AgentPrompt) bool {
			waits = n == ref.GetNumber() && p.GetPromptId() != a.Status.GetPromptId() && !p.GetHeld()
			if n < ref.GetNumber() && !p.GetHeld() && p.GetPromptId() != a.Status.GetPromptId() {
				q.Ahead++
			}
			return n < ref.GetNumber()
		})
		q.Sequence = a.Status.GetLastSequence()
		if seq := l.promptBegan(a, promptID); seq != 0 {
			q.Sequence = seq - 1
		} else if !waits {
			q.Sequence = a.Status.GetTruncatedThrough()
		}
		if !waits {
			q.Ahead = 0
		}
		return q, nil
	})
}

// promptBegan returns the sequence of the first kept event of a claimed prompt; 0: none is kept.
func (l loader) promptBegan(a *Agent, promptID string) (seq uint64) {
	l.agentEventsBack(a, func(ev *agboxv1.AgentEvent) bool {
		if ev.GetMessage().GetPromptId() == promptID {
			seq = ev.GetSequence()
		}
		return true
	})
	return seq
}

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
		if get(tx, bucketAgentConfig, []byte(id)) == nil && get(tx, bucketAgentDesired, []byte(id)) == nil { // not created, or removed
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
