package store

import (
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// execsOfNoAgent reports whether an exec is active that holds the idle clock whatever the agents do.
func (sb *Sandbox) execsOfNoAgent() bool {
	return slices.ContainsFunc(sb.ActiveExecs, func(execID string) bool { return !sb.isAgentExec(execID) })
}

func (sb *Sandbox) isAgentExec(execID string) bool {
	agentID := agentOfExec(execID)
	if agentID == "" {
		return false
	}
	_, ok := slices.BinarySearch(sb.Agents, agentID)
	return ok
}

// idle derives IdleSince from the events and from the agents that lookup returns.
func (sb *Sandbox) idle(lookup func(id string) *Agent) time.Time {
	since := sb.idleFrom
	if since.IsZero() {
		return noTime
	}
	for _, id := range sb.Agents {
		st := lookup(id).statusOrNil()
		if st.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY {
			return noTime
		}
		if at := time.Unix(0, st.GetStateChangedAt()).UTC(); at.After(since) {
			since = at
		}
	}
	return since
}

func (a *Agent) statusOrNil() *agentStatus {
	if a == nil {
		return nil
	}
	return a.Status
}

// settle stages what a change of an agent makes of its sandbox. The sandbox's pass is told when it became idle, or ceased
// to be: later beginnings of the clock it finds when the earlier one is over.
func (t *txn) settle(sandboxID string) {
	sb := t.sandboxNow(sandboxID)
	if sb == nil || sb.Corrupt {
		return
	}
	was := sb.IdleSince
	if sb.IdleSince = sb.idle(t.agentNow); sb.IdleSince.Equal(was) {
		return
	}
	t.changes.sandboxes[sb.ID] = sb
	if sb.IdleSince.IsZero() != was.IsZero() {
		t.touched = append(t.touched, touch{sb.ID, ""})
	}
}

// sandboxNow is a draft of a live sandbox with what this request has staged.
func (t *txn) sandboxNow(id string) *Sandbox {
	if sb, changed := t.changes.sandboxes[id]; changed {
		return sb
	}
	return t.live(id)
}

// agentNow is an agent with what this request has staged. It is not to be changed.
func (t *txn) agentNow(id string) *Agent {
	if a, changed := t.changes.agents[id]; changed {
		return a
	}
	return t.agentBefore(id)
}

// agentBefore is an agent as earlier requests left it; nil when there is none. It is not to be changed.
func (t *txn) agentBefore(id string) *Agent {
	if a, changed := t.group.agents[id]; changed {
		return a
	}
	return t.index.agents[id]
}
