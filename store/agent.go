package store

import (
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

// Agent is a copy of the store's records of one agent; changing it does not change the store.
type Agent struct {
	ID string
	// Name as given at creation, or empty. Unique among agents whose delete was not requested.
	Name      string
	SandboxID string
	// Spec, Desired and Status are nil if their record does not decode; Corrupt is then true.
	Spec    *agboxv1.AgentSpec
	Desired *storev1.AgentDesired
	// Status.State is never unspecified: for a record without a state, the store derives it from the other fields.
	Status *storev1.AgentStatus
	// CreatedAt is when the ID was reserved.
	CreatedAt time.Time
	// Queued is the number of waiting prompts, without held ones and without the claimed one.
	Queued int
	// Held is the number of held prompts, and HeldReason why the newest of them is held.
	Held       int
	HeldReason string
	// Corrupt is true when a record does not decode. Such an agent is returned with its readable parts, is not in LiveAgentIDs, and every
	// write to it returns ErrDataLoss.
	Corrupt bool
}

// Limits on the stored records of agents.
const (
	// maxAgentIDBytes leaves room for ".<incarnation>" in an exec ID.
	maxAgentIDBytes = 180
	// maxAgents in one sandbox: one transaction requests the delete of all of them.
	maxAgents = 1000
	// maxPrompts that wait, and maxHeld prompts that were cut off and are only listed.
	maxPrompts = 1000
	maxHeld    = 16
	// maxTransitions kept for one agent.
	maxTransitions = 1000
)

func (a *Agent) copied() Agent {
	c := *a
	c.Spec, c.Desired, c.Status = proto.CloneOf(a.Spec), proto.CloneOf(a.Desired), proto.CloneOf(a.Status) // nil stays nil
	return c
}

// lives reports whether the agent has a process according to its record.
func (a *Agent) lives() bool {
	switch a.Status.GetState() {
	case agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY:
		return true
	}
	return false
}

// AgentFilter selects agents. Empty fields select everything.
type AgentFilter struct {
	SandboxID string
	// Labels that the spec must all have.
	Labels map[string]string
}

// agentOfExec returns the ID of the agent whose process the exec is; empty for other execs.
func agentOfExec(execID string) string {
	agentID, _, _ := execid.OfAgent(execID)
	return agentID
}
