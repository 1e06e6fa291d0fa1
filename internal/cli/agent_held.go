package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

// promptVerb is a command about one queued prompt of an agent.
type promptVerb struct {
	name, done  string
	short, long string
	suggestFor  []string
	// held: only a held prompt can be chosen by default.
	held   bool
	method func(c *client.Client, ctx context.Context, agentID, promptID string) error
}

var promptVerbs = []promptVerb{
	{
		name: "redeliver", done: "is queued again", held: true, suggestFor: []string{"retry", "release"},
		short: "Give an agent a held prompt again",
		long: `Give an agent a held prompt again, before newer prompts. A prompt is held when the process of the agent has died in its turn twice, or
when on_interrupted is hold. "agbox agent describe" lists the prompts that wait or are held; the start of an ID is enough, and
the only held prompt needs none.`,
		method: (*client.Client).RedeliverPrompt,
	},
	{
		name: "withdraw", done: "is withdrawn", suggestFor: []string{"unqueue", "drop"},
		short: "Remove a prompt that waits or is held",
		long: `Remove a prompt that waits or is held. "agbox agent describe" lists them; the start of an ID is enough, and the only prompt needs
none. For the prompt that the agent works on, use "agbox agent interrupt".`,
		method: (*client.Client).WithdrawPrompt,
	},
}

func (a *app) promptVerbCommand(v promptVerb) *cobra.Command {
	return &cobra.Command{
		Use: v.name + " NAME [PROMPT]", Short: v.short, Long: v.long, SuggestFor: v.suggestFor, ValidArgsFunction: a.agentKind().first,
		Example: fmt.Sprintf("  agbox agent %s coder\n  agbox agent %s coder 3f2a", v.name, v.name),
		Args:    count(1, 2, "the name of an agent, and the ID of a prompt"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			one, err := a.agentKind().full(ctx, args[0])
			if err != nil {
				return err
			}
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			if id, err = v.choose(cmd, one, id); err != nil {
				return err
			}
			if err := v.method(a.conn(), ctx, one.GetAgentId(), id); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "agent/%s prompt %s %s\n", agentName(one), id, v.done)
			return nil
		},
	}
}

// choose returns the ID of the one prompt that the start of an ID names, or that the verb is about. An ID that no listed prompt has is the
// daemon's to judge.
func (v promptVerb) choose(cmd *cobra.Command, one *agboxv1.AgentHandle, start string) (id string, err error) {
	var ids []string
	for _, p := range one.GetQueue() {
		if strings.HasPrefix(p.GetPromptId(), start) && (!v.held || p.GetHeld()) {
			ids = append(ids, p.GetPromptId())
		}
		if p.GetPromptId() == start {
			return start, nil
		}
	}
	switch {
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) > 1:
		return "", usagef(cmd, "name one of the prompts %s", termsafe.Line(strings.Join(ids, ", ")))
	case start != "":
		return start, nil
	case v.held:
		return "", fmt.Errorf("agent %s has no held prompt", agentName(one))
	}
	return "", fmt.Errorf("agent %s has no queued prompt", agentName(one))
}
