package main

import (
	"strings"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

func agentStateName(s agboxv1.AgentState) string {
	return strings.ToLower(enum.Word(s))
}

func agentStateNames() []string {
	var names []string
	for _, s := range []agboxv1.AgentState{
		agboxv1.AgentState_AGENT_STATE_PENDING, agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE,
		agboxv1.AgentState_AGENT_STATE_BUSY, agboxv1.AgentState_AGENT_STATE_STOPPED, agboxv1.AgentState_AGENT_STATE_FAILED,
	} {
		names = append(names, agentStateName(s))
	}
	return names
}

func (d *daemon) countAgentsByState() map[string]int {
	counts := map[string]int{}
	for state, n := range d.store.CountAgentsByState() {
		counts[agentStateName(state)] = n
	}
	return counts
}

// agentsInNeed returns the number of agents that do not restart until a user starts them.
func (d *daemon) agentsInNeed() (n int) {
	for _, a := range d.store.Agents(store.AgentFilter{}) {
		if a.Status.GetNeedsAttention() {
			n++
		}
	}
	return n
}
