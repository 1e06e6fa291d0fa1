package cli

import (
	"context"
	"fmt"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// waitAgent is kind.wait.
func (a *app) waitAgent(ctx context.Context, one *agboxv1.AgentHandle, want string, _ *pulls) (*agboxv1.AgentHandle, error) {
	now, err := a.conn().WaitAgent(ctx, one.GetAgentId(), client.AgentCondition(want))
	if !client.IsAgentFailed(err) {
		return now, err
	}
	text := "will not be " + want
	if want == string(client.AgentMoved) {
		text = "has moved, and does not run in its new sandbox"
	}
	return nil, fmt.Errorf("agent %s %s: %s; see \"agbox agent describe %s\"", agentName(one), text, agentFacts(now), agentName(one))
}

// agentFacts is kind.facts.
func agentFacts(one *agboxv1.AgentHandle) string {
	return strings.Join(nonEmpty([]string{agentState(one), agentTrouble(one)}), ", ")
}
