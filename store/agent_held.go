package store

import (
	"cmp"
	"context"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// outcomeWithdrawn is the outcome of a prompt that was withdrawn.
const outcomeWithdrawn = "withdrawn"

// RequestRedelivery returns a held prompt to the queue, before newer prompts, and forgets the ends of the process in its turns. changed is
// false when the prompt waits or is worked on. Errors: as RequestAgentRun; PROMPT_NOT_FOUND; AGENT_INVALID_STATE for a completed or
// withdrawn prompt; AGENT_PROMPTS_FULL.
func (s *Store) RequestRedelivery(ctx context.Context, id, promptID string) (changed bool, err error) {
	return s.promptIntent(ctx, id, promptID, func(d *agentDraft, n uint64, p *storev1.AgentPrompt, ref *storev1.AgentPromptRef) (bool, error) {
		switch {
		case p == nil:
			return false, promptIsOver(id, promptID, ref)
		case !p.GetHeld():
			return false, nil
		case d.Queued >= maxPrompts:
			return false, promptsFull(d.Agent)
		}
		d.unhold(n)
		p.Held, p.HeldReason, p.Strikes = false, "", 0
		d.requeue(n, p)
		return true, nil
	})
}

// WithdrawPrompt removes a prompt that waits or is held, and appends AGENT_PROMPT_WITHDRAWN. changed is false when it was withdrawn before.
// Errors: as RequestAgentRun; PROMPT_NOT_FOUND; AGENT_INVALID_STATE for a completed prompt, and for the one that the agent works on.
func (s *Store) WithdrawPrompt(ctx context.Context, id, promptID string) (changed bool, err error) {
	return s.promptIntent(ctx, id, promptID, func(d *agentDraft, n uint64, p *storev1.AgentPrompt, ref *storev1.AgentPromptRef) (bool, error) {
		switch {
		case ref.GetWithdrawn():
			return false, nil
		case p == nil:
			return false, promptIsOver(id, promptID, ref)
		case promptID == d.Status.GetPromptId():
			return false, refuse("agent_id", id, "AGENT_INVALID_STATE", errdefs.ErrFailedPrecondition,
				"agent %s works on prompt %s; interrupt its turn instead", id, promptID)
		}
		if p.GetHeld() {
			d.unhold(n)
		} else {
			d.Queued--
		}
		d.deleteNumbered(prefixAgentPrompts+id, n)
		ref.Withdrawn = true
		d.put(prefixAgentPromptIDs+id, promptID, ref)
		d.append(&agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_PROMPT_WITHDRAWN,
			Details:   &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{PromptId: promptID, Outcome: outcomeWithdrawn}},
		})
		return true, nil
	})
}

// unhold takes a prompt off the summary of held ones.
func (d *agentDraft) unhold(n uint64) {
	d.Held, d.HeldReason = 0, ""
	d.eachPrompt(d.ID, func(m uint64, p *storev1.AgentPrompt) bool {
		if p.GetHeld() && m != n {
			d.Held, d.HeldReason = d.Held+1, HeldReason(p)
		}
		return true
	})
}

// HeldReason returns why a prompt is held. Records of older daemons don't say it.
func HeldReason(p *storev1.AgentPrompt) string {
	if !p.GetHeld() {
		return ""
	}
	return cmp.Or(p.GetHeldReason(), "its turn was cut off")
}

// promptIntent changes a prompt by fn, which gets its record, nil once it is over, and its ID's. Errors: PROMPT_NOT_FOUND, and those of fn.
func (s *Store) promptIntent(
	ctx context.Context, id, promptID string, fn func(*agentDraft, uint64, *storev1.AgentPrompt, *storev1.AgentPromptRef) (bool, error),
) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) {
		if get(d.tx, prefixAgentPromptIDs+id, []byte(promptID)) == nil {
			return false, promptNotFound(id, promptID)
		}
		ref, err := d.promptRef(d.Agent, promptID)
		if err != nil {
			return false, err
		}
		var p *storev1.AgentPrompt
		if value := get(d.tx, prefixAgentPrompts+id, encodeInt(ref.GetNumber())); value != nil {
			if p, err = d.prompt(id)(encodeInt(ref.GetNumber()), value); err != nil {
				return false, err
			}
		}
		changed, err := fn(d, ref.GetNumber(), p, ref)
		if err != nil || !changed {
			return false, err
		}
		d.wake = true
		d.save()
		return true, nil
	})
}

func promptIsOver(id, promptID string, ref *storev1.AgentPromptRef) error {
	what := "is over"
	if ref.GetWithdrawn() {
		what = "was withdrawn"
	}
	return refuse("agent_id", id, "AGENT_INVALID_STATE", errdefs.ErrFailedPrecondition, "prompt %s of agent %s %s", promptID, id, what)
}
