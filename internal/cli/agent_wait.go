package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// awaitAgent is kind.await.
func (a *app) awaitAgent(ctx context.Context, one *agboxv1.AgentHandle, want string, timeout time.Duration) error {
	_, err := a.awaitAgentHandle(ctx, one, client.AgentCondition(want), timeout)
	return err
}

// awaitAgentHandle waits until an agent meets a condition, notes meanwhile how it is, and returns its handle of then.
func (a *app) awaitAgentHandle(ctx context.Context, one *agboxv1.AgentHandle, want client.AgentCondition, timeout time.Duration) (*agboxv1.AgentHandle, error) {
	stop := a.noteWaiting(ctx, func(ctx context.Context) (string, bool) {
		now, err := a.conn().GetAgent(ctx, one.GetAgentId())
		if err != nil {
			return "", false // the wait itself meets the same error
		}
		return fmt.Sprintf("waiting for agent/%s to be %s: %s", agentName(one), want, agentFacts(now)), false
	})
	now, err := a.conn().WaitAgent(ctx, one.GetAgentId(), want)
	stop()
	if err != nil {
		return nil, a.agentWaitError(one, now, want, timeout, err)
	}
	return now, nil
}

// agentFacts is the state of an agent and what keeps it from being as wanted.
func agentFacts(one *agboxv1.AgentHandle) string {
	if trouble := agentTrouble(one); trouble != "" {
		return agentState(one) + ", " + trouble
	}
	return agentState(one)
}

// agentWaitError says how an agent is that does not meet its condition, and which command says more.
func (a *app) agentWaitError(one, now *agboxv1.AgentHandle, want client.AgentCondition, timeout time.Duration, err error) error {
	if now == nil && errors.Is(err, context.DeadlineExceeded) {
		now = a.agentKind().late(one)
	}
	name, why := agentName(one), ""
	if now != nil {
		why = ": " + agentFacts(now)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("agent %s is not %s after %s; the daemon continues%s", name, want, timeout, why)
	case client.IsAgentFailed(err) && want == client.AgentMoved:
		return fmt.Errorf("agent %s has moved, and does not run in its new sandbox%s; see \"agbox agent describe %s\"", name, why, name)
	case client.IsAgentFailed(err):
		return fmt.Errorf("agent %s will not be %s%s; see \"agbox agent describe %s\"", name, want, why, name)
	}
	return err
}
