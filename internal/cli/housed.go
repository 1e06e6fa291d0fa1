package cli

import (
	"context"
	"fmt"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// housed returns, by sandbox ID, the agents that a delete of the sandbox would delete: not those that are already being deleted or
// moving to another sandbox.
func (a *app) housed(ctx context.Context) (map[string][]*agboxv1.AgentHandle, error) {
	all, err := a.agents(ctx)
	if err != nil {
		return nil, err
	}
	of := map[string][]*agboxv1.AgentHandle{}
	for _, one := range all {
		if one.GetDesiredState() != wantDeleted && one.GetMovesTo() == "" {
			of[one.GetSandboxId()] = append(of[one.GetSandboxId()], one)
		}
	}
	return of, nil
}

// maxNamed is how many agents a message names.
const maxNamed = 5

// agentNames is "agent coder", "agents coder and tester", or "agents a, b, c, d, e and 12 more".
func agentNames(all []*agboxv1.AgentHandle) string {
	var names []string
	for _, one := range all[:min(len(all), maxNamed)] {
		names = append(names, agentName(one))
	}
	if rest := len(all) - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("%d more", rest))
	}
	if len(names) == 1 {
		return "agent " + names[0]
	}
	last := len(names) - 1
	return "agents " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// processes returns the number of agents with a process.
func processes(all []*agboxv1.AgentHandle) (n uint32) {
	for _, one := range all {
		switch one.GetState() {
		case agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY:
			n++
		}
	}
	return n
}

// fateOf says what happens to the agents of a sandbox that is deleted.
func fateOf(agents []*agboxv1.AgentHandle, sb *agboxv1.SandboxHandle, keep bool) string {
	its, stay, leave := "its conversation", "is kept", "is deleted"
	if len(agents) > 1 {
		its, stay, leave = "their conversations", "are kept", "are deleted"
	}
	switch {
	case !keep:
		return fmt.Sprintf("%s %s with %s; \"agbox delete --keep-agents\" keeps agents", agentNames(agents), leave, its)
	case sb.GetName() == "":
		return fmt.Sprintf("%s %s with %s; \"agbox agent move\" moves agents to another sandbox", agentNames(agents), stay, its)
	}
	return fmt.Sprintf("%s %s with %s, for the next sandbox named %s", agentNames(agents), stay, its, sb.GetName())
}

// losses says what is lost with a sandbox that is replaced, and which agents are kept.
func losses(sb *agboxv1.SandboxHandle, agents []*agboxv1.AgentHandle) string {
	text := "its files and logs are lost"
	if n := sb.GetActiveExecs(); n > processes(agents) {
		text += fmt.Sprintf(", %d running commands are cancelled", n-processes(agents))
	}
	if len(agents) > 0 {
		text += "; " + comeAlong(agents)
	}
	return text
}

func comeAlong(agents []*agboxv1.AgentHandle) string {
	if len(agents) == 1 {
		return agentNames(agents) + " moves to the new sandbox with its conversation"
	}
	return agentNames(agents) + " move to the new sandbox with their conversations"
}
