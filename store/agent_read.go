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
	s.index.mu.RLock()
	a := s.index.agents[id]
	s.index.mu.RUnlock()
	switch {
	case a == nil:
		return Agent{}, agentNotFound(id)
	case a.Corrupt:
		return a.copied(), corruptAgent(id)
	}
	return a.copied(), nil
}

// AgentByName returns the agent that holds a name; an agent whose delete was requested holds none. Errors: as Agent.
func (s *Store) AgentByName(ctx context.Context, name string) (Agent, error) {
	s.index.mu.RLock()
	id := s.index.agentNames[name]
	s.index.mu.RUnlock()
	if id == "" {
		return Agent{}, agentNotFound(name)
	}
	return s.Agent(ctx, id)
}

// Agents returns the agents that f selects, corrupt ones included, newest first, then by ID. From memory.
func (s *Store) Agents(f AgentFilter) []Agent {
	var out []Agent
	for _, a := range s.index.allAgents() {
		if a.matches(f) {
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
	for _, a := range s.index.allAgents() {
		if !a.Corrupt {
			ids = append(ids, a.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// AgentsOf returns the sorted IDs of the agents of a live sandbox. From memory.
func (s *Store) AgentsOf(sandboxID string) []string {
	sb, ok := s.index.sandbox(sandboxID)
	if !ok {
		return nil
	}
	return slices.Clone(sb.Agents)
}

// CountAgentsByState returns how many agents are in each state. From memory.
func (s *Store) CountAgentsByState() map[agboxv1.AgentState]int {
	n := map[agboxv1.AgentState]int{}
	for _, a := range s.index.allAgents() {
		n[a.Status.GetState()]++
	}
	return n
}

// AgentPosition returns how far the output of the current incarnation was ingested; empty when none was. Errors: AGENT_NOT_FOUND;
// ErrDataLoss; ErrUnavailable.
func (s *Store) AgentPosition(ctx context.Context, id string) (*storev1.AgentPosition, error) {
	return viewAgent(ctx, s, id, func(_ *Agent, l loader) (*storev1.AgentPosition, error) { return l.position(id) })
}
