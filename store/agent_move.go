package store

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// RequestMove records the intent that an agent moves to another live sandbox; naming its current sandbox withdraws an earlier request.
// changed is false when the intent is the same. Errors: Refusals SANDBOX_NOT_FOUND, AGENTS_FULL, AGENT_INVALID_STATE also for a sandbox
// that is deleted or whose delete was requested; else as RequestAgentRun.
func (s *Store) RequestMove(ctx context.Context, id, sandboxID string) (changed bool, err error) {
	return s.agentIntent(ctx, id, func(d *agentDraft) (bool, error) {
		sb, err := d.mayHold(id, sandboxID)
		if err != nil {
			return false, err
		}
		to := sb.ID
		if to == d.SandboxID {
			to = ""
		} else if len(sb.Agents) >= maxAgents {
			return false, agentsFull(id, sb.ID)
		}
		if d.Desired.GetMoveTo() == to {
			return false, nil
		}
		d.Desired.MoveTo = to
		d.intend(d.Desired.GetRun())
		return true, nil
	})
}

// mayHold returns a draft of a sandbox that can hold an agent. Errors: SANDBOX_NOT_FOUND, AGENT_INVALID_STATE, SANDBOX_ADOPTED, ErrDataLoss.
func (t *txn) mayHold(agentID, sandboxID string) (*Sandbox, error) {
	sb, err := t.sandbox(sandboxID, agentSandboxBeingDeleted(agentID, sandboxID))
	if err == nil && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_DELETE {
		return nil, agentSandboxBeingDeleted(agentID, sandboxID)
	}
	if err == nil && sb.isAdopted() {
		return nil, hasNoShim(sandboxID)
	}
	return sb, err
}

// Destination returns the sandbox that an agent should move to now: the one requested by RequestMove, or, if its own sandbox is deleted or
// its delete was requested, the one that holds that sandbox's name. Empty: none. From memory.
func (s *Store) Destination(id string) string {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	a := s.index.agents[id]
	if a == nil || a.Corrupt {
		return ""
	}
	return a.destination(func(id string) *Sandbox { return s.index.sandboxes[id] }, func(name string) string { return s.index.names[name] })
}

func (a *Agent) destination(live func(id string) *Sandbox, holder func(name string) string) string {
	stays := func(id string) bool {
		sb := live(id)
		return sb != nil && !sb.Corrupt && sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_DELETE
	}
	if to := a.Desired.GetMoveTo(); to != "" && stays(to) {
		return to
	}
	if home := a.Desired.GetHome(); home != "" && !stays(a.SandboxID) {
		if to := holder(home); stays(to) {
			return to
		}
	}
	return ""
}

// MoveAgent moves an agent without a process to its Destination, with its conversation and its queue. A FAILED agent restarts there with a
// new count of attempts. The files of its program's session are left behind, so it receives its context again unless its saved session
// is current. Errors: ErrAborted when version, unless it is 0, is not the current one, the agent has a process, or it has no destination; AGENTS_FULL;
// AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) MoveAgent(ctx context.Context, id string, version uint64) error {
	return s.update(ctx, func(t *txn) error {
		d, err := t.agent(id)
		if err != nil {
			return err
		}
		to := t.live(d.destination(t.live, t.nameHolder))
		from := t.live(d.SandboxID)
		switch active := from.activeExecOf(id); {
		case version != 0 && version != d.Status.GetVersion():
			return agentMoved(id, "move on version %d, and the present one is %d", version, d.Status.GetVersion())
		case d.lives(), active != "":
			return agentMoved(id, "it has a process")
		case to == nil:
			return agentMoved(id, "there is no sandbox to move to")
		case len(to.Agents) >= maxAgents:
			return agentsFull(id, to.ID)
		}
		d.move(from, to)
		return nil
	})
}

func (d *agentDraft) move(from, to *Sandbox) {
	st := d.Status
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MOVED,
		Details:   &agboxv1.AgentEvent_Move{Move: &agboxv1.AgentMove{FromSandboxId: d.SandboxID, ToSandboxId: to.ID}},
	})
	d.SandboxID, d.Spec.SandboxId, d.Desired.SandboxId = to.ID, to.ID, to.ID
	d.Desired.MoveTo, d.Desired.Home = "", ""
	if !d.IsSessionCurrent() {
		d.forgetSession()
	}
	if d.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_RUN && st.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED {
		st.Parked, st.Attempts, st.NeedsAttention = true, 0, false
	}
	if from != nil && !from.Corrupt {
		from.Agents = withoutID(from.Agents, d.ID)
		d.changes.sandboxes[from.ID] = from
	}
	to.Agents = withID(to.Agents, d.ID)
	d.changes.sandboxes[to.ID] = to
	d.wake = true
	// The files of the old process are not in the new sandbox.
	position := &storev1.AgentPosition{Incarnation: st.GetIncarnation(), Ended: true}
	d.put(bucketAgentPosition, d.ID, position)
	d.put(bucketAgentConfig, d.ID, d.Spec)
	d.save()
	if from != nil && !from.Corrupt {
		d.settle(from.ID)
		d.touched = append(d.touched, Change{SandboxID: from.ID})
	}
}

// AdoptAgent records that a restarted daemon observed the process of an incarnation alive. Repeated calls for an incarnation change
// nothing. Errors: ErrAborted for another incarnation; AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) AdoptAgent(ctx context.Context, id string, incarnation uint64) error {
	return s.update(ctx, func(t *txn) error {
		d, err := t.agent(id)
		switch {
		case err != nil:
			return err
		case d.Status.GetIncarnation() != incarnation || !d.lives():
			return agentMoved(id, "incarnation %d is not the present one", incarnation)
		case d.Status.GetAdoptedIncarnation() == incarnation:
			return nil
		}
		d.Status.AdoptedIncarnation = incarnation
		d.save()
		return nil
	})
}
