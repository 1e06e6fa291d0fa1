package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// RemoveAgent removes all records of an agent whose delete was requested and that has no active exec. The ID stays reserved, and the store
// closes the channels of its watchers. It takes several transactions; only the last one removes the records that identify the agent, so a
// caller can repeat an interrupted removal. Errors: ErrFailedPrecondition; AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RemoveAgent(ctx context.Context, id string) error {
	return s.updateUntil(ctx, func(t *txn) (bool, error) { return t.removeAgent(id) })
}

func (t *txn) removeAgent(id string) (done bool, err error) {
	d, err := t.agent(id)
	if err != nil {
		return false, err
	}
	sb := t.live(d.SandboxID)
	active := sb.activeExecOf(id)
	if run := d.Desired.GetRun(); run != storev1.AgentRun_AGENT_RUN_DELETE || active != "" {
		return false, fmt.Errorf("remove agent %s: wanted is %s, and exec %q is active: %w", id, run, active, errdefs.ErrFailedPrecondition)
	}
	if left := t.purgeBuckets(id, prefixAgentEvents, prefixAgentTransitions, prefixAgentPrompts, prefixAgentPromptIDs); left {
		return false, nil
	}
	for _, bucket := range []string{bucketAgentConfig, bucketAgentDesired, bucketAgentStatus, bucketAgentPosition} {
		t.delete(bucket, id)
	}
	t.changes.agents[id] = nil
	t.touched = append(t.touched, Change{AgentID: id})
	if sb != nil && !sb.Corrupt {
		sb.Agents = withoutID(sb.Agents, id)
		t.keep(sb, "")
	}
	return true, nil
}

// activeExecOf returns the ID of an active exec of an agent; empty: there is none.
func (sb *Sandbox) activeExecOf(agentID string) string {
	if sb == nil {
		return ""
	}
	for _, execID := range sb.ActiveExecs {
		if agentOfExec(execID) == agentID {
			return execID
		}
	}
	return ""
}

// readableAgents returns the number of agents that keep their sandbox from being DELETED: those whose delete was requested and those that
// still have a process. A corrupt agent is kept and does not count.
func (t *txn) readableAgents(sb *Sandbox) (n int) {
	for _, id := range sb.Agents {
		a := t.agentNow(id)
		if a != nil && !a.Corrupt && (a.lives() || a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE) {
			n++
		}
	}
	return n
}
