package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

type agentGetOptions struct {
	output  *output
	sandbox string
	labels  *selector
	watch   bool
}

func (a *app) agentListCommand() *cobra.Command {
	cmd := a.agentGetCommand()
	cmd.Use, cmd.Short, cmd.Aliases = "list", "List agents", []string{"ls"}
	cmd.Long = `List agents, newest first. A "?" behind a state means that the daemon has not observed the agent since the daemon started.
With -w, print an agent again on each change.`
	cmd.Example = "  agbox agent list\n  agbox agent list --sandbox web -o wide"
	cmd.Args, cmd.ValidArgsFunction = noArgs, cobra.NoFileCompletions
	return cmd
}

func (a *app) agentGetCommand() *cobra.Command {
	var o agentGetOptions
	cmd := &cobra.Command{
		Use: "get [NAME...]", SuggestFor: []string{"ps", "status", "show"}, Short: "Show agents by name, or list all", ValidArgsFunction: a.agentKind().names,
		Long: `Show agents. "-o yaml" prints manifests that can be applied again. A "?" behind a state means that the daemon has not observed
the agent since the daemon started. With -w, print an agent again on each change, until ^C or until all named ones are deleted.`,
		Example: "  agbox agent get coder\n  agbox agent get -l team=a -w\n  agbox agent get coder -o yaml > coder.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (o.labels.given() || o.sandbox != "") {
				return usagef(cmd, "expected names, or -l and --sandbox, not both")
			}
			if o.watch {
				if o.output.given() {
					return usagef(cmd, "-w prints a table: without -o, or with -o wide; SubscribeAgents of the API is for programs")
				}
				return a.watchAgents(cmd, args, o)
			}
			return a.getAgents(cmd, args, o)
		},
	}
	o.output = outputFlag(cmd, objectFormats...)
	o.labels = a.selectorFlag(cmd, "only those with these labels")
	cmd.Flags().StringVar(&o.sandbox, "sandbox", "", "only those of this sandbox")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "keep running and print changes")
	onFlag(cmd, "sandbox", a.sandboxKind().names)
	return cmd
}

func (a *app) getAgents(cmd *cobra.Command, refs []string, o agentGetOptions) error {
	matching := func(ctx context.Context) ([]*agboxv1.AgentHandle, error) {
		if o.sandbox == "" {
			return a.agentKind().selected(ctx, o.labels)
		}
		sb, err := a.sandboxKind().resolve(ctx, o.sandbox)
		if err != nil {
			return nil, err
		}
		all, err := a.conn().ListAgents(ctx, sb.GetSandboxId(), nil)
		return having(o.labels, all), err
	}
	return get(cmd.Context(), a, a.agentKind(), refs, o.output, matching)
}

func (a *app) printAgents(ctx context.Context, found []*agboxv1.AgentHandle, wide bool) error {
	all, err := a.live(ctx)
	if err != nil {
		return err
	}
	t := newTable(a.Out, wide)
	t.paintStates(a.Out, 1)
	t.add(agentHeader(wide)...)
	for _, one := range found {
		t.add(agentRow(one, sandboxNames(all), wide, time.Now())...)
	}
	t.write(a.Out)
	return nil
}

func sandboxNames(all []*agboxv1.SandboxHandle) map[string]string {
	names := map[string]string{}
	for _, sb := range all {
		names[sb.GetSandboxId()] = nameOrID(sb)
	}
	return names
}

func (a *app) agentCommand() *cobra.Command {
	cmd := group("agent", "Manage agents: programs that work in a sandbox turn by turn", `Manage agents. An agent is a program in a sandbox that takes prompts and answers them. Its state and its conversation
survive its process, and a new process receives the conversation.

  agbox agent create coder --sandbox web -- my-agent
  agbox agent prompt coder --wait "what is in TODO.md?"
  agbox agent list`)
	cmd.Aliases = []string{"agents"}
	cmd.AddCommand(
		a.agentCreateCommand(), a.agentListCommand(), a.agentGetCommand(), a.agentDescribeCommand(), a.agentPromptCommand(), a.agentAttachCommand(),
		a.agentConversationCommand(), a.agentCheckpointCommand(), a.agentTransitionsCommand(), a.agentMoveCommand(),
	)
	for _, v := range promptVerbs {
		cmd.AddCommand(a.promptVerbCommand(v))
	}
	addVerbs(cmd, a, a.agentKind(), agentVerbs)
	return cmd
}
