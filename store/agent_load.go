package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

// loadAgents loads all agents and returns the sorted IDs of the agents of each sandbox. It reads the keys of both buckets that a create
// writes, so that damage to one of them hides no agent.
func (s *Store) loadAgents(tx *bolt.Tx) map[string][]string {
	l := loader{tx, s.corrupt.add}
	of := map[string][]string{}
	for _, bucket := range []string{bucketAgentConfig, bucketAgentDesired} {
		for k := range records(tx, bucket, nil) {
			id := string(k)
			if s.index.agents[id] != nil {
				continue
			}
			a := l.agent(id)
			l.countPrompts(a)
			s.index.agents[id] = a
			if a.Name != "" && a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE {
				s.index.agentNames[a.Name] = id
			}
			of[a.SandboxID] = append(of[a.SandboxID], id)
		}
	}
	for _, ids := range of {
		slices.Sort(ids)
	}
	return of
}

// agent reads the readable records of one agent, but not its prompts.
func (l loader) agent(id string) *Agent {
	a := &Agent{ID: id, CreatedAt: l.time(bucketAgentID, id)}
	a.Spec, _ = required[*agboxv1.AgentSpec](l, bucketAgentConfig, id, "")
	a.Desired = l.agentDesired(id)
	a.Name, a.SandboxID = a.Desired.GetName(), cmp.Or(a.Desired.GetSandboxId(), a.Spec.GetSandboxId())
	a.Status = l.agentStatus(a)
	a.Corrupt = a.Spec == nil || a.Desired == nil || a.Status == nil
	return a
}

// countPrompts sets what an Agent says of its prompts.
func (l loader) countPrompts(a *Agent) {
	l.eachPrompt(a.ID, func(_ uint64, p *storev1.AgentPrompt) bool {
		switch {
		case p.GetHeld():
			a.Held, a.HeldReason = a.Held+1, HeldReason(p)
		case p.GetPromptId() != a.Status.GetPromptId():
			a.Queued++
		}
		return true
	})
}

func (l loader) agentDesired(id string) *agentDesired {
	d, err := required[*agentDesired](l, bucketAgentDesired, id, "")
	if err != nil {
		return nil
	}
	if d.GetRun() < storev1.AgentRun_AGENT_RUN_RUN || d.GetRun() > storev1.AgentRun_AGENT_RUN_DELETE || d.GetSandboxId() == "" {
		_ = l.noted(bucketAgentDesired, id, "", fmt.Errorf("no intent in it: %w", errdefs.ErrDataLoss)) // noted already
		return nil
	}
	return d
}

func (l loader) agentStatus(a *Agent) *agentStatus {
	st, err := optional[*agentStatus](l, bucketAgentStatus, a.ID, "")
	if err != nil {
		return nil
	}
	if st.GetState() == agboxv1.AgentState_AGENT_STATE_UNSPECIFIED {
		l.fillState(a, st)
	}
	if _, known := agboxv1.AgentState_name[int32(st.GetState())]; !known {
		_ = l.noted(bucketAgentStatus, a.ID, "", fmt.Errorf("state %d is not known: %w", st.GetState(), errdefs.ErrDataLoss)) // noted already
		return nil
	}
	return st
}

// fillState derives the state of a record that an older version wrote without one. An agent whose process has not ended is running, so
// that an upgrade does not fail it.
func (l loader) fillState(a *Agent, st *agentStatus) {
	st.State = agboxv1.AgentState_AGENT_STATE_PENDING
	switch execID := execid.ForAgent(a.ID, st.GetIncarnation()); {
	case st.GetIncarnation() == 0:
	case get(l.tx, prefixExecConfig+a.SandboxID, []byte(execID)) == nil, get(l.tx, prefixExecStatus+a.SandboxID, []byte(execID)) != nil:
		st.State = agboxv1.AgentState_AGENT_STATE_STOPPED
	case st.GetPromptId() != "":
		st.State = agboxv1.AgentState_AGENT_STATE_BUSY
	default:
		st.State = agboxv1.AgentState_AGENT_STATE_IDLE
	}
}
