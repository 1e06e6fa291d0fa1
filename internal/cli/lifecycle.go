package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func (a *app) stopCommand() *cobra.Command {
	return a.verbCommand("stop", "Stop sandboxes; their files stay, running execs are cancelled", client.Stopped,
		func(c *client.Client) func(context.Context, string) error { return c.StopSandbox })
}

func (a *app) resumeCommand() *cobra.Command {
	cmd := a.verbCommand("resume", "Start stopped sandboxes again", client.Ready,
		func(c *client.Client) func(context.Context, string) error { return c.ResumeSandbox })
	cmd.SuggestFor = []string{"start", "restart"}
	return cmd
}

// verbCommand is a request to named sandboxes that is waited for by default.
func (a *app) verbCommand(verb, short string, want client.Condition, method func(*client.Client) func(context.Context, string) error) *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: verb + " NAME...", Short: short, ValidArgsFunction: a.completeNames,
		Example: fmt.Sprintf("  agbox %s web\n  agbox %s web db --wait=false", verb, verb),
		Args:    atLeastOne("the name or ID of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.request(cmd.Context(), c, args, verb, wait, want, timeout, method(c))
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "return once it is done")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "with --wait: give up after this long")
	return cmd
}

// request asks for all, then waits for all, so that they go on side by side.
func (a *app) request(ctx context.Context, c *client.Client, refs []string, verb string, wait bool, want client.Condition, timeout time.Duration, ask func(context.Context, string) error) error {
	var asked []*agboxv1.SandboxHandle
	failed := false
	for _, ref := range refs {
		sb, err := a.resolve(ctx, ref)
		if err == nil {
			err = ask(ctx, sb.GetSandboxId())
		}
		if client.IsUnavailable(err) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			a.complain(explain(verb, sb, err))
			failed = true
			continue
		}
		if !wait {
			fmt.Fprintf(a.Out, "sandbox/%s %s requested\n", nameOrID(sb), verb)
		}
		sb.State = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED // what it was before we asked
		asked = append(asked, sb)
	}
	a.warnEngine(ctx, c)
	if wait {
		failed = a.waitAll(ctx, c, asked, want, timeout) || failed
	}
	return outcomeOf(ctx, failed)
}

// explain adds the present state and the next step to a refusal for the wrong state.
func explain(verb string, sb *agboxv1.SandboxHandle, err error) error {
	if sb == nil || !client.IsFailedPrecondition(err) {
		return err
	}
	name, state := nameOrID(sb), client.StateName(sb.GetState())
	text := fmt.Sprintf("cannot %s sandbox %s: it is %s", verb, name, state)
	switch sb.GetState() {
	case agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		text += fmt.Sprintf("; \"agbox describe %s\" says why, only a delete leads out", name)
	case agboxv1.SandboxState_SANDBOX_STATE_PENDING:
		text += "; try again when it is READY"
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		text += fmt.Sprintf("; \"agbox resume %s\" starts it", name)
	case agboxv1.SandboxState_SANDBOX_STATE_READY:
		if sb.GetDesiredState() != "" {
			text += " and being stopped"
		}
	}
	return fmt.Errorf("%s", text)
}
