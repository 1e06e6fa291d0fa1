package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// RemoveAgent forgets an agent that is to be deleted and has no active exec: all its records go, the ID stays reserved, and
// watchers see their channel closed. It takes several transactions; the last one removes what the agent is found by, so one
// that was cut off is begun again. Errors: ErrFailedPrecondition; AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RemoveAgent(ctx context.Context, id string) error {
	for done := false; !done; { // each round but the last removes at least one key
		err := s.update(ctx, func(t *txn) error {
			var err error
			done, err = t.removeAgent(id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
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
	room := purgeBatch
	for _, prefix := range []string{prefixAgentEvents, prefixAgentTransitions, prefixAgentPrompts, prefixAgentPromptIDs} {
		bucket := prefix + id
		b := t.tx.Bucket([]byte(bucket))
		if b == nil {
			continue
		}
		if t.purgeKeys(b, bucket, false, &room) {
			return false, nil
		}
		if err := t.stage(op{kind: opDropBucket, bucket: bucket}); err != nil {
			return false, err
		}
	}
	return true, t.forgetAgent(id, sb)
}

// forgetAgent stages the end of what an agent is found by.
func (t *txn) forgetAgent(id string, sb *Sandbox) error {
	for _, bucket := range []string{bucketAgentConfig, bucketAgentDesired, bucketAgentStatus, bucketAgentPosition} {
		if err := t.delete(bucket, id); err != nil {
			return err
		}
	}
	t.changes.agents[id] = nil
	t.agentsTouched = append(t.agentsTouched, id)
	t.agentsGone = append(t.agentsGone, id)
	if sb != nil && !sb.Corrupt {
		sb.Agents = withoutID(sb.Agents, id)
		t.keep(sb, "")
	}
	return nil
}

// activeExecOf is an exec of an agent that has not ended; empty: there is none.
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

// readableAgents is the number of agents that keep their sandbox from being DELETED: those that go with it, and those that still
// have a process in it. One that does not decode is kept as it is, and keeps nobody.
func (t *txn) readableAgents(sb *Sandbox) (n int) {
	for _, id := range sb.Agents {
		a := t.agentNow(id)
		if a != nil && !a.Corrupt && (a.lives() || a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE) {
			n++
		}
	}
	return n
}
