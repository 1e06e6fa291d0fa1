package store

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// RequestAgentRun wants an agent to run, with a new count of attempts: one that is STOPPED or FAILED comes back by itself.
// changed is false when nothing of that is new: it runs or is about to, and needs no attention. Errors: Refusals
// AGENT_NOT_FOUND and AGENT_INVALID_STATE when it is to be deleted; ErrDataLoss; ErrUnavailable.
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

// RequestAgentStop wants an agent's process gone. changed is false when that is so already. Errors: as RequestAgentRun.
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

// RequestInterrupt wants the present turn of a BUSY agent to end: it is not given again then. changed is false when that was
// asked for already. Errors: as RequestAgentRun; AGENT_INVALID_STATE also when it is not BUSY.
func (s *Store) RequestInterrupt(ctx context.Context, id string) (changed bool, err error) {
	return s.turnIntent(ctx, id, func(d *agentDraft, prompt string) bool {
		if d.Desired.GetInterruptPromptId() == prompt && !d.Desired.GetInterruptToSave() {
			return false
		}
		d.Desired.InterruptPromptId, d.Desired.InterruptToSave = prompt, false
		return true
	})
}

// RequestFreeze is RequestInterrupt so that the agent's work can be saved: the prompt counts as cut off, also when the program
// says that it has ended the turn for it. An interrupt that was asked for already stays what it is. An agent that is to be deleted
// is frozen too: its sandbox waits for its work. Errors: as RequestInterrupt.
func (s *Store) RequestFreeze(ctx context.Context, id string) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		d, err := t.agent(id)
		switch prompt := d.prompt(); {
		case err != nil:
			return false, err
		case prompt == "":
			return false, agentNotBusy(id)
		case d.Desired.GetInterruptPromptId() == prompt:
			return false, nil
		default:
			d.Desired.InterruptPromptId, d.Desired.InterruptToSave = prompt, true
		}
		d.intend(d.Desired.GetRun())
		return true, d.save()
	})
}

// prompt is the one that a BUSY agent works on; empty: it is not BUSY.
func (d *agentDraft) prompt() string {
	if d == nil || d.Status.GetState() != agboxv1.AgentState_AGENT_STATE_BUSY {
		return ""
	}
	return d.Status.GetPromptId()
}

// RequestNudge wants a BUSY agent to be told the nudge of its spec, once in a turn. changed is false when that was asked for
// already, or it has none. Errors: as RequestInterrupt.
func (s *Store) RequestNudge(ctx context.Context, id string) (changed bool, err error) {
	return s.turnIntent(ctx, id, func(d *agentDraft, _ string) bool { return d.nudge() })
}

// nudge wants the present turn to be told the nudge; false: there is no turn, or nothing new to tell.
func (d *agentDraft) nudge() bool {
	prompt := d.Status.GetPromptId()
	if prompt == "" || d.Desired.GetNudgePromptId() == prompt || d.Spec.GetNudge() == "" {
		return false
	}
	d.Desired.NudgePromptId, d.Status.NudgedIncarnation = prompt, d.Status.GetIncarnation()
	return true
}

// turnIntent changes what is wanted of the present turn.
func (s *Store) turnIntent(ctx context.Context, id string, fn func(d *agentDraft, promptID string) bool) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) {
		switch {
		case d.Status.GetState() != agboxv1.AgentState_AGENT_STATE_BUSY:
			return false, agentNotBusy(id)
		case !fn(d, d.Status.GetPromptId()):
			return false, nil
		}
		d.intend(d.Desired.GetRun())
		return true, nil
	})
}

// RequestAgentDelete wants an agent gone, with its conversation, and lets go of its name. changed is false when that is so
// already. Errors: AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RequestAgentDelete(ctx context.Context, id string) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		d, err := t.agent(id)
		if err != nil {
			return false, err
		}
		return t.deleteAgent(d)
	})
}

func (t *txn) deleteAgent(d *agentDraft) (changed bool, err error) {
	if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
		return false, nil
	}
	if d.Name != "" && t.agentNameHolder(d.Name) == d.ID {
		t.changes.agentNames[d.Name] = ""
	}
	d.Status.Parked = false
	d.intend(storev1.AgentRun_AGENT_RUN_DELETE)
	return true, d.save()
}

// deleteAgentsOf wants all agents of a sandbox gone, but for those that are on their way to another one. Who is busy is nudged:
// what it can bring out of the sandbox in time is not lost. What does not decode stays as it is.
func (t *txn) deleteAgentsOf(sb *Sandbox) error {
	for _, id := range sb.Agents {
		a := t.agentBefore(id)
		if a == nil || a.Corrupt {
			continue
		}
		d := t.draft(a)
		if d.movesAway() {
			if err := d.stay(sb.Name); err != nil {
				return err
			}
			continue
		}
		if d.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE {
			d.nudge()
		}
		if _, err := t.deleteAgent(d); err != nil {
			return err
		}
	}
	return nil
}

// agentIntent changes what is wanted of an agent that is not to be deleted.
func (s *Store) agentIntent(ctx context.Context, id string, fn func(*agentDraft) (bool, error)) (changed bool, err error) {
	return s.change(ctx, func(t *txn) (bool, error) {
		d, err := t.agent(id)
		if err != nil {
			return false, err
		}
		if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
			return false, agentBeingDeleted(id)
		}
		changed, err := fn(d)
		if err != nil || !changed {
			return false, err
		}
		return true, d.save()
	})
}

// intend is the next generation of what is wanted.
func (d *agentDraft) intend(run storev1.AgentRun) {
	d.Desired.Run, d.Desired.RequestedAt = run, d.now.UnixNano()
	d.Desired.Generation++
	d.wake = true
}
