package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
)

func (a *app) agentMoveCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "move NAME SANDBOX", SuggestFor: []string{"mv", "migrate", "transfer"}, Short: "Move an agent to another sandbox, with its conversation",
		Long: `Move an agent to another sandbox, with its conversation and its queued prompts. A turn in progress finishes first. Then the process
ends, and a new process in the other sandbox receives the conversation so far. Files are not moved. To cancel a move that has not
happened yet, name the sandbox that the agent is in.`,
		Example:           "  agbox agent move coder lab --wait",
		ValidArgsFunction: perArgument(a.agentKind().names, a.sandboxKind().names),
		Args:              exactly(2, "the name or ID of an agent, and that of the sandbox to move to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.moveAgent(cmd.Context(), args[0], args[1], wait, timeout)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return once it has moved, and runs if its desired_state is running")
	cmd.Flags().Var(quantity.NewDurationFlag(&timeout, defaultWait), "timeout", "with --wait: give up after this long")
	return cmd
}

func (a *app) moveAgent(ctx context.Context, ref, sandbox string, wait bool, timeout time.Duration) error {
	one, err := a.agentKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	sb, err := a.sandboxKind().resolve(ctx, sandbox)
	if err != nil {
		return err
	}
	if err := a.conn().MoveAgent(ctx, one.GetAgentId(), sb.GetSandboxId()); err != nil {
		return a.agentRefused(ctx, "move", one, err)
	}
	a.hint(sleepingSandbox(sb))
	switch {
	case wait:
		a.warnEngine(ctx)
		return a.awaitMove(ctx, one, sb, timeout)
	case one.GetSandboxId() == sb.GetSandboxId():
		fmt.Fprintf(a.Out, "agent/%s stays in sandbox/%s\n", agentName(one), nameOrID(sb))
	default:
		fmt.Fprintf(a.Out, "agent/%s moves to sandbox/%s\n", agentName(one), nameOrID(sb))
	}
	return nil
}

func (a *app) awaitMove(ctx context.Context, one *agboxv1.AgentHandle, to *agboxv1.SandboxHandle, timeout time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now, err := await(waiting, a, a.agentKind(), one, string(client.AgentMoved), timeout)
	switch {
	case errors.Is(err, context.Canceled) || isInterrupt(ctx):
		return outcomeOf(ctx, true)
	case err != nil:
		return err
	case now.GetSandboxId() != to.GetSandboxId():
		return fmt.Errorf("agent %s did not move to %s: a newer request replaced this one, or that sandbox is deleted; see \"agbox agent describe %s\"",
			agentName(one), nameOrID(to), agentName(one))
	}
	fmt.Fprintf(a.Out, "agent/%s moved to sandbox/%s\n", agentName(one), nameOrID(to))
	return nil
}
