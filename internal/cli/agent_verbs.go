package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// agentVerb is a request to named agents.
type agentVerb struct {
	name, short, long string
	suggestFor        []string
	// wants is the condition of --wait; empty: the verb has no --wait. byDefault is the default of --wait.
	wants     client.AgentCondition
	byDefault bool
	method    func(*client.Client, context.Context, string) error
	// missing adds --ignore-not-found.
	missing bool
}

func (a *app) agentStopCommand() *cobra.Command {
	return a.agentVerbCommand(agentVerb{
		name: "stop", short: "End the processes of agents; their conversations and queues stay",
		long: `End the processes of agents: TERM, and KILL after a grace period. A turn in progress is cut off; "agbox drain" and a stop of
the sandbox let it finish. Conversations stay, and prompts are queued until "agbox agent start".`,
		suggestFor: []string{"pause"}, wants: client.AgentStopped, byDefault: true, method: (*client.Client).StopAgent,
	})
}

func (a *app) agentStartCommand() *cobra.Command {
	return a.agentVerbCommand(agentVerb{
		name: "start", short: "Start stopped and failed agents; they receive their conversation",
		suggestFor: []string{"resume", "restart"}, wants: client.AgentRunning, byDefault: true, method: (*client.Client).StartAgent,
	})
}

func (a *app) agentInterruptCommand() *cobra.Command {
	return a.agentVerbCommand(agentVerb{
		name: "interrupt", short: "Ask busy agents to end their turn; the prompt is not given again",
		suggestFor: []string{"cancel", "abort"}, method: (*client.Client).InterruptAgent,
	})
}

func (a *app) agentDeleteCommand() *cobra.Command { return a.agentVerbCommand(deleteAgents) }

var deleteAgents = agentVerb{
	name: "delete", short: "Remove agents with their conversations",
	long:       "Remove agents: their processes, conversations and queued prompts. What they did in the sandbox stays. The name is free at once.",
	suggestFor: []string{"rm", "remove", "kill"}, wants: client.AgentDeleted, method: (*client.Client).DeleteAgent, missing: true,
}

type agentVerbOptions struct {
	wait, ignore bool
	timeout      time.Duration
}

func (a *app) agentVerbCommand(v agentVerb) *cobra.Command {
	var o agentVerbOptions
	cmd := &cobra.Command{
		Use: v.name + " NAME...", Short: v.short, Long: v.long, SuggestFor: v.suggestFor, ValidArgsFunction: a.completeAgents,
		Example: fmt.Sprintf("  agbox agent %s coder", v.name),
		Args:    atLeastOne(oneAgent),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.askAgents(cmd.Context(), args, v, o) },
	}
	if v.wants != "" {
		cmd.Flags().BoolVar(&o.wait, "wait", v.byDefault, "return once it is done")
		cmd.Flags().DurationVar(&o.timeout, "timeout", defaultWait, "with --wait: give up after this long")
	}
	if v.missing {
		cmd.Flags().BoolVar(&o.ignore, "ignore-not-found", false, "a missing agent is no error")
	}
	return cmd
}

// askAgents sends all requests, then waits for all, so that they run in parallel.
func (a *app) askAgents(ctx context.Context, refs []string, v agentVerb, o agentVerbOptions) error {
	var asked []*agboxv1.AgentHandle
	failed := false
	for _, ref := range refs {
		one, err := a.askAgent(ctx, ref, v)
		switch {
		case err == nil:
			asked = append(asked, one)
		case o.ignore && isAgentNotFound(err):
		case client.IsUnavailable(err) || ctx.Err() != nil:
			return err
		default:
			a.complain(err)
			failed = true
		}
	}
	if !o.wait {
		for _, one := range asked {
			fmt.Fprintf(a.Out, "agent/%s %s requested\n", agentName(one), v.name)
		}
		return outcomeOf(ctx, failed)
	}
	if a.conn != nil {
		a.warnEngine(ctx, a.conn)
	}
	return outcomeOf(ctx, a.waitAgents(ctx, asked, v.wants, o.timeout) || failed)
}

func (a *app) askAgent(ctx context.Context, ref string, v agentVerb) (*agboxv1.AgentHandle, error) {
	one, err := a.resolveAgent(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := v.method(a.conn, ctx, one.GetAgentId()); err != nil {
		return nil, a.agentRefused(ctx, v.name, one, err)
	}
	return one, nil
}

// waitAgents waits for each agent in turn, all within one timeout, prints each result, and reports whether any failed.
func (a *app) waitAgents(ctx context.Context, all []*agboxv1.AgentHandle, want client.AgentCondition, timeout time.Duration) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, one := range all {
		stop := a.tellAgent(ctx, one, want)
		now, err := a.conn.WaitAgent(ctx, one.GetAgentId(), want)
		stop()
		if err == nil {
			fmt.Fprintf(a.Out, "agent/%s %s\n", agentName(one), want)
			continue
		}
		if !errors.Is(err, context.Canceled) && !isInterrupt(ctx) {
			a.complain(a.agentWaitError(one, now, want, timeout, err))
		}
		failed = true
	}
	return failed
}

// lateAgent reads the state of an agent whose wait timed out before the first read; nil if the daemon does not answer.
func (a *app) lateAgent(id string) *agboxv1.AgentHandle {
	ctx, cancel := context.WithTimeout(context.Background(), lateLook)
	defer cancel()
	now, err := a.conn.GetAgent(ctx, id)
	if err != nil {
		return nil
	}
	return now
}

// agentWaitError adds the agent's name, its state and the command that shows more.
func (a *app) agentWaitError(one, now *agboxv1.AgentHandle, want client.AgentCondition, timeout time.Duration, err error) error {
	if now == nil && errors.Is(err, context.DeadlineExceeded) {
		now = a.lateAgent(one.GetAgentId())
	}
	name := agentName(one)
	why := ""
	if now != nil {
		why = ": " + agentState(now)
		if trouble := agentTrouble(now); trouble != "" {
			why += ", " + trouble
		}
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

// tellAgent regularly shows what the wait is for, until stop is called.
func (a *app) tellAgent(ctx context.Context, one *agboxv1.AgentHandle, want client.AgentCondition) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for wait.For(ctx, lookEvery) == nil {
			now, err := a.conn.GetAgent(ctx, one.GetAgentId())
			if err != nil || ctx.Err() != nil {
				continue // the wait returns the error
			}
			text := fmt.Sprintf("waiting for agent/%s to be %s: %s", agentName(one), want, agentState(now))
			if trouble := agentTrouble(now); trouble != "" {
				text += ", " + trouble
			}
			a.notes.say(text)
		}
	}()
	return func() {
		cancel()
		<-gone
		a.notes.clear()
	}
}
