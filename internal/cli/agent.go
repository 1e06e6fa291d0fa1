package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

const oneAgent = "the name or ID of an agent"

func (a *app) agentCommand() *cobra.Command {
	cmd := group("agent", "Manage agents: programs that work in a sandbox turn by turn", `Manage agents. An agent is a program in a sandbox that takes prompts and answers them. Its state and its conversation
survive its process, and a new process receives the conversation.

  agbox agent create coder --sandbox web -- my-agent
  agbox agent prompt coder --wait "what is in TODO.md?"
  agbox agent list`)
	cmd.Aliases = []string{"agents"}
	cmd.AddCommand(
		a.agentCreateCommand(), a.agentListCommand(), a.agentGetCommand(), a.agentDescribeCommand(), a.agentPromptCommand(), a.agentAttachCommand(),
		a.agentConversationCommand(), a.agentCheckpointCommand(), a.agentTransitionsCommand(), a.agentInterruptCommand(), a.agentStopCommand(),
		a.agentStartCommand(), a.agentMoveCommand(), a.agentDeleteCommand(),
	)
	return cmd
}

// agentRefused adds the present state and the next step to a refusal for the wrong state.
func (a *app) agentRefused(ctx context.Context, verb string, one *agboxv1.AgentHandle, err error) error {
	if !client.IsFailedPrecondition(err) {
		return err
	}
	if now, again := a.conn().GetAgent(ctx, one.GetAgentId()); again == nil {
		one = now
	}
	text := fmt.Sprintf("cannot %s agent %s: it is %s", verb, agentName(one), agentState(one))
	switch {
	case one.GetDesiredState() == wantDeleted:
		return errors.New(text + " and being deleted")
	case client.Reason(err) == "AGENT_INVALID_STATE" && verb == "interrupt":
		return errors.New(text + "; only one that is BUSY has a turn to interrupt")
	}
	return fmt.Errorf("%s: %w; see \"agbox agent describe %s\"", text, err, agentName(one))
}
