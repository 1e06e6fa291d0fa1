package store

import (
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

// Agent is what the store knows of one agent. It is a copy: changing it changes nothing in the store.
type Agent struct {
	ID string
	// Name as given at creation, or empty. Unique among agents that nobody asked to delete.
	Name      string
	SandboxID string
	// Spec, Desired and Status are nil while Corrupt says that they do not decode.
	Spec    *agboxv1.AgentSpec
	Desired *storev1.AgentDesired
	// Status.State is never unspecified: a record without one has that which its other fields mean.
	Status *storev1.AgentStatus
	// CreatedAt is when the ID was reserved.
	CreatedAt time.Time
	// Queued is the number of prompts that wait and are not held; the one being worked on is not among them.
	Queued int
	// Corrupt is true when a record does not decode. Such an agent is served with what is readable, is not in LiveAgentIDs,
	// and every write to it is ErrDataLoss.
	Corrupt bool
}

// Bounds of what is kept.
const (
	// maxAgentIDBytes leaves room for ".<incarnation>" in an exec ID.
	maxAgentIDBytes = 180
	// maxAgents of one sandbox: all of them are asked to go in one transaction.
	maxAgents = 1000
	// maxPrompts that wait, and maxHeld that were cut off and are only shown.
	maxPrompts = 1000
	maxHeld    = 16
	// maxTransitions kept of an agent.
	maxTransitions = 1000
)

// ExecID is the ID of the exec that is the given life of an agent's process. No client can choose such a one.
func (a Agent) ExecID(incarnation uint64) string { return execid.ForAgent(a.ID, incarnation) }

func (a *Agent) copied() Agent {
	c := *a
	if a.Spec != nil {
		c.Spec = proto.CloneOf(a.Spec)
	}
	if a.Desired != nil {
		c.Desired = proto.CloneOf(a.Desired)
	}
	if a.Status != nil {
		c.Status = proto.CloneOf(a.Status)
	}
	return c
}

// lives reports whether the record says that there is a process.
func (a *Agent) lives() bool {
	switch a.Status.GetState() {
	case agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY:
		return true
	}
	return false
}

func (a *Agent) matches(f AgentFilter) bool {
	if f.SandboxID != "" && f.SandboxID != a.SandboxID {
		return false
	}
	for k, want := range f.Labels {
		if v, ok := a.Spec.GetLabels()[k]; !ok || v != want {
			return false
		}
	}
	return true
}

// AgentFilter selects agents. Empty fields select everything.
type AgentFilter struct {
	SandboxID string
	// Labels that the spec must have, all of them.
	Labels map[string]string
}

// agentOfExec returns the agent whose process an exec is; empty: it is no agent's.
func agentOfExec(execID string) string {
	agentID, _, _ := execid.OfAgent(execID)
	return agentID
}
