package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Agent returns one agent, from memory. Errors: AGENT_NOT_FOUND; ErrDataLoss, together with the readable parts; ctx's.
func (s *Store) Agent(ctx context.Context, id string) (Agent, error) {
	if err := ctx.Err(); err != nil {
		return Agent{}, err
	}
	switch a := lookup(&s.index, s.index.agents, id); {
	case a == nil:
		return Agent{}, agentNotFound(id)
	case a.Corrupt:
		return a.copied(), corruptAgent(id)
	default:
		return a.copied(), nil
	}
}

// AgentByName returns the agent that holds a name; an agent whose delete was requested holds none. Errors: as Agent.
func (s *Store) AgentByName(ctx context.Context, name string) (Agent, error) {
	id := lookup(&s.index, s.index.agentNames, name)
	if id == "" {
		return Agent{}, agentNotFound(name)
	}
	return s.Agent(ctx, id)
}

// Agents returns the agents that f selects, corrupt ones included, newest first, then by ID. From memory.
func (s *Store) Agents(f AgentFilter) []Agent {
	var out []Agent
	for _, a := range all(&s.index, s.index.agents) {
		if (f.SandboxID == "" || f.SandboxID == a.SandboxID) && hasLabels(a.Spec.GetLabels(), f.Labels) {
			out = append(out, a.copied())
		}
	}
	slices.SortFunc(out, func(a, b Agent) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out
}

// LiveAgentIDs returns the sorted IDs of all agents whose records decode, also of those whose delete was requested. From memory.
func (s *Store) LiveAgentIDs() []string {
	var ids []string
	for _, a := range all(&s.index, s.index.agents) {
		if !a.Corrupt {
			ids = append(ids, a.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// AgentsOf returns the sorted IDs of the agents of a live sandbox. From memory.
func (s *Store) AgentsOf(sandboxID string) []string {
	if sb := s.index.sandbox(sandboxID); sb != nil {
		return slices.Clone(sb.Agents)
	}
	return nil
}

// CountAgentsByState returns how many agents are in each state. From memory.
func (s *Store) CountAgentsByState() map[agboxv1.AgentState]int {
	n := map[agboxv1.AgentState]int{}
	for _, a := range all(&s.index, s.index.agents) {
		n[a.Status.GetState()]++
	}
	return n
}

// CountAgentsInNeed returns the number of agents that do not restart until a user starts them.
func (s *Store) CountAgentsInNeed() (n int) {
	for _, a := range all(&s.index, s.index.agents) {
		if a.Status.GetNeedsAttention() {
			n++
		}
	}
	return n
}

// AgentPosition returns how far the output of the current incarnation was ingested; empty when none was. Errors: AGENT_NOT_FOUND;
// ErrDataLoss; ErrUnavailable.
func (s *Store) AgentPosition(ctx context.Context, id string) (*storev1.AgentPosition, error) {
	return viewAgent(ctx, s, id, func(_ *Agent, l loader) (*storev1.AgentPosition, error) { return l.position(id) })
}
