package store

import (
	"fmt"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	outcomeInterrupted = "interrupted"
	onInterruptedHold  = "hold"
	// maxStrikes is in how many turns of a prompt the process may end by itself. Interruptions that are not of the prompt's making, such as
	// drains, don't count: otherwise the second planned stop would shelve a long task.
	maxStrikes = 2
)

// endTurn removes the prompt whose turn has a result. If the daemon interrupted that turn to save work, and it did not complete, the prompt
// may be delivered again. The work is saved in either case: what the turn left behind is not known.
func (d *agentDraft) endTurn(outcome string) (again bool) {
	toSave := d.isInterrupted() && d.Desired.GetInterruptToSave()
	return d.leavePrompt(isCutShort(outcome) && toSave, Transition{Reason: "its turn was interrupted to save its work"})
}

// isCutShort reports whether a turn that was interrupted may have stopped before its end. Not every program reports an interrupt as such:
// gemini 0.61 ends some of these turns with max_turn_requests.
func isCutShort(outcome string) bool {
	return outcome == outcomeInterrupted || outcome == "error" || strings.HasPrefix(outcome, "max_")
}

// cutTurn ends a turn without a result and requeues, holds or removes its prompt.
func (d *agentDraft) cutTurn(tr Transition) (again bool) {
	d.compactOpen()
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED,
		Details: &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{
			PromptId: d.Status.GetPromptId(), Outcome: outcomeInterrupted,
		}},
	})
	return d.leavePrompt(!d.isInterrupted() || d.Desired.GetInterruptToSave(), tr)
}

// isInterrupted reports whether the interrupt of the current turn was requested.
func (d *agentDraft) isInterrupted() bool {
	return d.Desired.GetInterruptPromptId() == d.Status.GetPromptId()
}

// leavePrompt ends the claim of the current turn's prompt. It removes the prompt, or gives it back.
func (d *agentDraft) leavePrompt(back bool, tr Transition) (again bool) {
	n, p, err := d.claimedPrompt(d.Agent)
	d.fail(err)
	d.Status.PromptId = ""
	switch {
	case err != nil, n == 0:
		return false
	case back:
		return d.giveBack(n, p, tr)
	}
	d.deleteNumbered(prefixAgentPrompts+d.ID, n)
	return false
}

// giveBack requeues or holds the prompt of a turn that was cut off by tr; again: it was requeued.
func (d *agentDraft) giveBack(n uint64, p *storev1.AgentPrompt, tr Transition) (again bool) {
	if tr.Strike {
		p.Strikes++
	}
	switch {
	case p.GetStrikes() >= maxStrikes:
		d.hold(n, p, fmt.Sprintf("its turn was cut off %d times, the last time because %s", maxStrikes, tr.Reason))
		return false
	case d.Spec.GetOnInterrupted() == onInterruptedHold:
		d.hold(n, p, "on_interrupted is hold, and its turn was cut off because "+tr.Reason)
		return false
	}
	d.recordRequeue(p.GetPromptId())
	d.requeue(n, p)
	return true
}

// requeue lets a prompt wait again, as if it had not been claimed.
func (d *agentDraft) requeue(n uint64, p *storev1.AgentPrompt) {
	p.Incarnation, p.InboxOffset, p.Past = 0, 0, ""
	p.ContextThrough, p.Summary = 0, "" //nolint:staticcheck // of an older daemon's claim
	d.Queued++
	d.putNumbered(prefixAgentPrompts+d.ID, n, p)
}

// recordRequeue records in the result of a turn, which this request appended, that its prompt is delivered again.
func (d *agentDraft) recordRequeue(promptID string) {
	for _, ev := range slices.Backward(d.events) {
		if r := ev.GetResult(); r != nil && r.GetPromptId() == promptID {
			r.Again = true
			return
		}
	}
}

// hold keeps a prompt until it is redelivered or withdrawn. Beyond maxHeld it removes the oldest held prompt.
func (d *agentDraft) hold(n uint64, p *storev1.AgentPrompt, reason string) {
	var held []uint64
	d.eachPrompt(d.ID, func(m uint64, q *storev1.AgentPrompt) bool {
		if q.GetHeld() {
			held = append(held, m)
		}
		return true
	})
	if len(held) >= maxHeld {
		d.deleteNumbered(prefixAgentPrompts+d.ID, held[0])
		d.Held--
	}
	p.Held, p.HeldReason = true, reason
	if d.Held++; len(held) == 0 || n > held[len(held)-1] {
		d.HeldReason = reason
	}
	d.putNumbered(prefixAgentPrompts+d.ID, n, p)
}

// claimedPrompt returns the prompt of the current turn; n is 0 when there is none. Errors: ErrDataLoss.
func (l loader) claimedPrompt(a *Agent) (n uint64, p *storev1.AgentPrompt, err error) {
	id := a.Status.GetPromptId()
	if id == "" {
		return 0, nil, nil
	}
	ref, err := l.promptRef(a, id)
	if err != nil {
		return 0, nil, err
	}
	n = ref.GetNumber()
	p, err = l.prompt(a.ID)(encodeInt(n), get(l.tx, prefixAgentPrompts+a.ID, encodeInt(n)))
	return n, p, err
}

func (l loader) promptRef(a *Agent, promptID string) (*storev1.AgentPromptRef, error) {
	return required[*storev1.AgentPromptRef](l, prefixAgentPromptIDs+a.ID, promptID, a.SandboxID)
}

func (l loader) prompt(id string) decoder[*storev1.AgentPrompt] {
	return numbered(l, prefixAgentPrompts+id, "", func(p *storev1.AgentPrompt, _ uint64) error {
		return misplaced(p.GetPromptId() != "", "no prompt in it")
	})
}

// eachPrompt calls fn with the prompts in order until fn returns false. It notes and skips prompts that do not decode.
func (l loader) eachPrompt(id string, fn func(n uint64, p *storev1.AgentPrompt) bool) {
	for k, v := range records(l.tx, prefixAgentPrompts+id, nil) {
		p, err := l.prompt(id)(k, v)
		if err != nil {
			continue
		}
		if n, _ := decodeInt(k); !fn(n, p) { // prompt has checked the key
			return
		}
	}
}
