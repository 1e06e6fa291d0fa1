package store

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// RequestAgentRun records the intent that an agent runs and resets its count of attempts; a STOPPED or FAILED agent restarts
// automatically. changed is false when the agent already runs or is about to, and needs no attention. Errors: Refusals AGENT_NOT_FOUND,
// and AGENT_INVALID_STATE when its delete was requested; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestAgentRun(ctx context.Context, id string) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) {
		st := d.Status
		if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_RUN && !st.GetNeedsAttention() &&
			(d.lives() || st.GetState() == agboxv1.AgentState_AGENT_STATE_PENDING || st.GetParked() && st.GetAttempts() == 0) {
			return false, nil
		}
		st.Parked, st.Attempts, st.NeedsAttention = true, 0, false
		d.intend(storev1.AgentRun_AGENT_RUN_RUN)
		return true, nil
	})
}

// RequestAgentStop records the intent that an agent has no process. changed is false when that was requested already. Errors: as
// RequestAgentRun.
func (s *Store) RequestAgentStop(ctx context.Context, id string) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) {
		if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_STOP {
			return false, nil
		}
		d.Status.Parked = false
		d.intend(storev1.AgentRun_AGENT_RUN_STOP)
		return true, nil
	})
}

// RequestInterrupt requests the end of the current turn of a BUSY agent; its prompt is not delivered again. changed is false when that was
// requested already. Errors: as RequestAgentRun; AGENT_INVALID_STATE also when the agent is not BUSY.
func (s *Store) RequestInterrupt(ctx context.Context, id string) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) {
		return d.turnIntent(func() bool { return d.interrupt(false) })
	})
}

// RequestInterruptToSave is RequestInterrupt for saving the agent's work: the prompt counts as cut off even if the program reports that it
// completed the turn because of the interrupt. An earlier interrupt request is not changed. An agent whose delete was requested is
// interrupted too, because its sandbox waits for its work. Errors: as RequestInterrupt.
func (s *Store) RequestInterruptToSave(ctx context.Context, id string) (changed bool, err error) {
	return onAgent(ctx, s, id, func(d *agentDraft) (bool, error) {
		return d.turnIntent(func() bool { return d.interrupt(true) })
	})
}

// interrupt requests the interrupt of the current turn. It returns false for an earlier request, unless that was to save work and this one
// is not.
func (d *agentDraft) interrupt(toSave bool) bool {
	prompt := d.Status.GetPromptId()
	if d.Desired.GetInterruptPromptId() == prompt && (toSave || !d.Desired.GetInterruptToSave()) {
		return false
	}
	d.Desired.InterruptPromptId, d.Desired.InterruptToSave = prompt, toSave
	return true
}

// RequestNudge requests that a BUSY agent receives its nudge, at most once in a turn. changed is false when that was requested already or
// the agent has no nudge. Errors: as RequestInterrupt.
func (s *Store) RequestNudge(ctx context.Context, id string) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) { return d.turnIntent(d.nudge) })
}

// nudge requests the nudge for the current turn. It returns false if there is no turn, no nudge, or an earlier request.
func (d *agentDraft) nudge() bool {
	prompt := d.Status.GetPromptId()
	text := validate.Nudge(d.Spec)
	if prompt == "" || d.Desired.GetNudgePromptId() == prompt || text == "" {
		return false
	}
	if d.Spec.GetNudge() == "" {
		d.Desired.DefaultNudge = text
	}
	d.Desired.NudgePromptId, d.Status.NudgedIncarnation = prompt, d.Status.GetIncarnation()
	return true
}

// forgetTurn withdraws the requests that concern one turn.
func (d *agentDraft) forgetTurn() {
	d.Desired.InterruptPromptId, d.Desired.InterruptToSave, d.Desired.NudgePromptId, d.Desired.DefaultNudge = "", false, "", ""
}

// turnIntent changes the desired state of the current turn by fn. Errors: AGENT_INVALID_STATE when the agent
// is not BUSY.
func (d *agentDraft) turnIntent(fn func() bool) (changed bool, err error) {
	switch {
	case d.Status.GetState() != agboxv1.AgentState_AGENT_STATE_BUSY:
		return false, agentNotBusy(d.ID)
	case !fn():
		return false, nil
	}
	d.intend(d.Desired.GetRun())
	return true, nil
}

// RequestAgentDelete records the intent to delete an agent with its conversation, and releases its name. changed is false when that was
// requested already. Errors: AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestAgentDelete(ctx context.Context, id string) (changed bool, err error) {
	return onAgent(ctx, s, id, func(d *agentDraft) (bool, error) { return d.deleteAgent(d), nil })
}

func (t *txn) deleteAgent(d *agentDraft) (changed bool) {
	if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
		return false
	}
	if t.agentNameHolder(d.Name) == d.ID {
		t.changes.agentNames[d.Name] = ""
	}
	d.Status.Parked = false
	d.intend(storev1.AgentRun_AGENT_RUN_DELETE)
	return true
}

// agentIntent changes the desired state of an agent whose delete was not requested.
func (s *Store) agentIntent(ctx context.Context, id string, fn func(*agentDraft) (bool, error)) (changed bool, err error) {
	return onAgent(ctx, s, id, func(d *agentDraft) (bool, error) {
		if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
			return false, agentBeingDeleted(id)
		}
		return fn(d)
	})
}

// intend stages the next generation of the desired state, and the draft.
func (d *agentDraft) intend(run storev1.AgentRun) {
	d.Desired.Run, d.Desired.RequestedAt = run, d.now.UnixNano()
	d.Desired.Generation++
	d.wake = true
	d.save()
}
