package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// AgentCondition is what WaitAgent waits for.
type AgentCondition string

// Conditions of an agent.
const (
	// AgentRunning is met while it is IDLE or BUSY, and the daemon has observed it since the daemon started.
	AgentRunning AgentCondition = "running"
	// AgentIdle is met while it is IDLE and no prompt waits for it.
	AgentIdle AgentCondition = "idle"
	// AgentStopped is met by a STOPPED or FAILED agent that the daemon will not start again without a request.
	AgentStopped AgentCondition = "stopped"
	// AgentMoved is met by an agent without a request to move that runs, has ended without a request, or whose desired state is
	// stopped. Its handle has its sandbox, which may be that of a newer request.
	AgentMoved   AgentCondition = "moved"
	AgentDeleted AgentCondition = "deleted"
)

// AgentFailedError means that an agent can't meet the awaited condition without a further request.
type AgentFailedError struct {
	Agent *agboxv1.AgentHandle
	Want  AgentCondition
}

// Error names the agent, its state and why.
func (e *AgentFailedError) Error() string {
	text := fmt.Sprintf("agent %s will not be %s: it is %s", e.Agent.GetAgentId(), e.Want, enum.Word(e.Agent.GetState()))
	if e.Agent.GetStatusMessage() != "" {
		text += " (" + e.Agent.GetStatusMessage() + ")"
	}
	return text
}

// WaitAgent returns once the agent, by ID or name, meets the condition. It fails with *AgentFailedError when the agent will not
// meet it without a further request. It requests no change. An agent that is deleted during the wait, or whose ID is
// unknown, counts as deleted; the handle is then the last one read, or nil. While the daemon does not answer it keeps
// trying, so give ctx a deadline.
func (c *Client) WaitAgent(ctx context.Context, idOrName string, want AgentCondition) (*agboxv1.AgentHandle, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last *agboxv1.AgentHandle
	read := func() (done bool, err error) {
		resp, err := again(ctx, c, c.agents.GetAgent, &agboxv1.GetAgentRequest{AgentId: idOrName})
		switch {
		case IsNotFound(err) && want == AgentDeleted:
			return true, nil
		case err != nil:
			return true, ended(ctx, err)
		}
		last, idOrName = resp.GetAgent(), resp.GetAgent().GetAgentId()
		return judgeAgent(last, want)
	}
	for {
		if done, err := read(); done {
			return last, err
		}
		// The cursor makes the daemon send the agent at once, also if it was deleted since it was read. Items have no spec.
		at := &agboxv1.AgentCursor{AgentId: idOrName, Sequence: last.GetLastEventSequence()}
		changes := AgentWatchOptions{Selector: last.GetLabels(), Cursors: []*agboxv1.AgentCursor{at}, Reconnect: true}
		for item, err := range c.WatchAgents(ctx, changes) {
			if IsOutOfRange(err) { // the daemon came back with an older history
				break
			}
			if err != nil {
				return last, err
			}
			if item.GetAgent().GetCursor().GetAgentId() != idOrName {
				continue
			}
			if done, err := read(); done {
				return last, err
			}
		}
	}
}

func judgeAgent(a *agboxv1.AgentHandle, want AgentCondition) (done bool, err error) {
	up := a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE || a.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
	down := a.GetState() == agboxv1.AgentState_AGENT_STATE_STOPPED || a.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED
	met := false
	switch want {
	case AgentRunning:
		met = up && a.GetDesiredState() == desiredRunning && !a.GetUnverified()
	case AgentIdle:
		met = a.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && a.GetQueuedPrompts() == 0 && !a.GetUnverified()
	case AgentStopped:
		met = down && !AgentComesBack(a)
	case AgentMoved:
		arrived := up && !a.GetUnverified() || !AgentComesBack(a) && a.GetState() != agboxv1.AgentState_AGENT_STATE_FAILED
		met = arrived && a.GetMovesTo() == "" && a.GetDesiredState() != desiredDeleted
	}
	starting := a.GetState() == agboxv1.AgentState_AGENT_STATE_STARTING
	switch {
	case met:
		return true, nil
	case want == AgentDeleted:
		return false, nil
	case a.GetDesiredState() == desiredDeleted:
		return true, &AgentFailedError{Agent: a, Want: want}
	case want == AgentStopped, up, starting, AgentComesBack(a):
		return false, nil
	case want == AgentMoved && (a.GetMovesTo() != "" || a.GetDesiredState() != desiredRunning):
		return false, nil // it moves without a process, and is stopped where it arrives
	}
	return true, &AgentFailedError{Agent: a, Want: want}
}

// Values of AgentHandle.desired_state.
const (
	desiredRunning = "running"
	desiredDeleted = "deleted"
)

// AgentComesBack reports whether the daemon starts the agent, or keeps it running, without a further request. It needs a
// handle with a spec.
func AgentComesBack(a *agboxv1.AgentHandle) bool {
	policy := a.GetSpec().GetRestartPolicy()
	switch {
	case a.GetDesiredState() != desiredRunning:
		return false
	case a.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED && a.GetMovesTo() != "":
		return true // a move starts it with a new count of attempts
	case a.GetNeedsAttention():
		return false
	case a.GetParked():
		return true
	case a.GetState() == agboxv1.AgentState_AGENT_STATE_STOPPED:
		return policy == "always"
	case a.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED:
		return policy != "never"
	}
	return true
}

// IsAgentFailed reports whether a wait ended with *AgentFailedError.
func IsAgentFailed(err error) bool {
	_, failed := errors.AsType[*AgentFailedError](err)
	return failed
}
