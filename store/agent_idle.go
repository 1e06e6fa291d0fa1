package store

import (
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// execsOfNoAgent reports whether an exec is active that no agent owns. Such an exec stops the idle clock.
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

// idle derives IdleSince from the sandbox's events and the agents that lookup returns.
func (sb *Sandbox) idle(lookup func(id string) *Agent) time.Time {
	since := sb.idleFrom
	if since.IsZero() {
		return noTime
	}
	for _, id := range sb.Agents {
		a := lookup(id)
		if a == nil {
			continue
		}
		if a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY {
			return noTime
		}
		if at := time.Unix(0, a.Status.GetStateChangedAt()).UTC(); at.After(since) {
			since = at
		}
	}
	return since
}

// settle stages the effect of an agent's change on its sandbox's idle time. It enqueues the sandbox when it became idle or stopped being
// idle. A later start of the idle clock enqueues nothing: the pass reads it when the earlier deadline expires.
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
		t.touched = append(t.touched, Change{SandboxID: sb.ID})
	}
}

// sandboxNow returns a draft of a live sandbox that includes the changes staged by this request.
func (t *txn) sandboxNow(id string) *Sandbox {
	if sb, changed := t.changes.sandboxes[id]; changed {
		return sb
	}
	return t.live(id)
}

// agentNow returns an agent that includes the changes staged by this request. The caller must not change it.
func (t *txn) agentNow(id string) *Agent {
	if a, changed := t.changes.agents[id]; changed {
		return a
	}
	return t.agentBefore(id)
}

// agentBefore returns an agent as earlier requests left it; nil when there is none. The caller must not change it.
func (t *txn) agentBefore(id string) *Agent {
	return latest(t.group.agents, t.index.agents, id)
}
