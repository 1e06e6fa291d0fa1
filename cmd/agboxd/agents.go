package main

import (
	"strings"

	"github.com/agbox/agbox/apis/enum"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

var agentStates = []agboxv1.AgentState{
	agboxv1.AgentState_AGENT_STATE_PENDING, agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE,
	agboxv1.AgentState_AGENT_STATE_BUSY, agboxv1.AgentState_AGENT_STATE_STOPPED, agboxv1.AgentState_AGENT_STATE_FAILED,
}

// label is the value of the label "state" of metrics.
func label[S protoreflect.Enum](state S) string { return strings.ToLower(enum.Word(state)) }

func labels[S protoreflect.Enum](states []S) []string {
	var all []string
	for _, s := range states {
		all = append(all, label(s))
	}
	return all
}

// labelled returns count with labels in place of states.
func labelled[S interface {
	comparable
	protoreflect.Enum
}](count func() map[S]int) func() map[string]int {
	return func() map[string]int {
		counts := map[string]int{}
		for state, n := range count() {
			counts[label(state)] = n
		}
		return counts
	}
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
