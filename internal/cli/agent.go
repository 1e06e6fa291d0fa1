package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// agents returns all agents, newest first, without their specs.
func (a *app) agents(ctx context.Context) ([]*agboxv1.AgentHandle, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	return c.ListAgents(ctx, "", nil)
}

// resolveAgent returns the agent with the name, the ID or the start of the ID ref, like resolve for sandboxes. The handle has no spec.
func (a *app) resolveAgent(ctx context.Context, ref string) (*agboxv1.AgentHandle, error) {
	ref = bare(kindAgent, ref)
	all, err := a.agents(ctx)
	if err != nil {
		return nil, err
	}
	byName, byID := namedAgent(all, ref), agentWithID(all, ref)
	switch {
	case byName != nil && byID != nil && byName != byID:
		return nil, fmt.Errorf("%q is ambiguous: the name of agent %s and the ID of another; use the ID of the one with the name, or the other's name",
			ref, byName.GetAgentId())
	case byName != nil:
		return byName, nil
	case byID != nil:
		return byID, nil
	}
	var found []*agboxv1.AgentHandle
	for _, one := range all {
		if len(ref) >= minPrefix && strings.HasPrefix(one.GetAgentId(), ref) {
			found = append(found, one)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, a.agentNotFound(ctx, ref)
	}
	return nil, fmt.Errorf("%q is ambiguous: the IDs of %d agents start with it; write more of the ID", ref, len(found))
}

// fullAgent is resolveAgent with the spec.
func (a *app) fullAgent(ctx context.Context, ref string) (*agboxv1.AgentHandle, error) {
	one, err := a.resolveAgent(ctx, ref)
	if err != nil {
		return nil, err
	}
	full, err := a.conn.GetAgent(ctx, one.GetAgentId())
	if client.IsNotFound(err) {
		return nil, a.agentNotFound(ctx, ref)
	}
	return full, err
}

// namedAgent returns the agent of that name, like named for sandboxes.
func namedAgent(all []*agboxv1.AgentHandle, name string) (best *agboxv1.AgentHandle) {
	for _, one := range all {
		switch {
		case one.GetName() == "" || one.GetName() != name:
		case one.GetDesiredState() != wantDeleted:
			return one
		case best == nil:
			best = one
		}
	}
	return best
}

func agentWithID(all []*agboxv1.AgentHandle, id string) *agboxv1.AgentHandle {
	i := slices.IndexFunc(all, func(one *agboxv1.AgentHandle) bool { return one.GetAgentId() == id })
	if i < 0 {
		return nil
	}
	return all[i]
}

// agentNotFoundError means that no agent has the name or ID ref.
type agentNotFoundError struct {
	ref string
	// sandbox is set if a sandbox has it.
	sandbox bool
}

func (e *agentNotFoundError) Error() string {
	if e.sandbox {
		return fmt.Sprintf("%s is a sandbox, not an agent; \"agbox agent list --sandbox %s\" lists its agents", e.ref, e.ref)
	}
	return fmt.Sprintf("agent %q not found; \"agbox agent list\" lists them", e.ref)
}

func (a *app) agentNotFound(ctx context.Context, ref string) error {
	all, err := a.live(ctx)
	if name := bare(kindSandbox, ref); err == nil && named(all, name) != nil {
		return &agentNotFoundError{ref: name, sandbox: true}
	}
	return &agentNotFoundError{ref: ref}
}

func isAgentNotFound(err error) bool {
	var missing *agentNotFoundError
	return errors.As(err, &missing)
}

// agentName returns the agent's name, or its ID if it has none.
func agentName(one *agboxv1.AgentHandle) string {
	if one.GetName() != "" {
		return one.GetName()
	}
	return one.GetAgentId()
}

// agentRefused adds the present state and the next step to a refusal for the wrong state.
func (a *app) agentRefused(ctx context.Context, verb string, one *agboxv1.AgentHandle, err error) error {
	if !client.IsFailedPrecondition(err) {
		return err
	}
	if now, again := a.conn.GetAgent(ctx, one.GetAgentId()); again == nil {
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

// completeAgents completes the names of agents that are not on the command line yet.
func (a *app) completeAgents(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := a.agents(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, one := range all {
		if name := agentName(one); !slices.Contains(args, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeAgent is completeAgents for verbs that take one.
func (a *app) completeAgent(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeAgents(cmd, args, typed)
}
