package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// verb is a request to named sandboxes with --wait=true as the default.
type verb struct {
	name, short, long string
	suggestFor        []string
	want              client.Condition
	method            func(*client.Client, context.Context, string) error
	// already returns the success message for a sandbox whose state made the request unnecessary. If it is nil or returns "", a
	// refusal is an error.
	already func(*agboxv1.SandboxHandle) string
}

func (a *app) stopCommand() *cobra.Command {
	return a.verbCommand(verb{
		name: "stop", short: "Stop sandboxes; their files stay, running execs are cancelled",
		want: client.Stopped, method: (*client.Client).StopSandbox,
	})
}

func (a *app) pauseCommand() *cobra.Command {
	return a.verbCommand(verb{
		name: "pause", short: "Freeze sandboxes; their processes keep their memory until \"resume\"",
		long: `Freeze sandboxes: their processes do not run, and keep their memory until "agbox resume". After pause.freeze_duration, or when
more than pause.max_frozen are frozen, the daemon stops the sandbox that was paused first to free its memory. That ends its commands;
it stays PAUSED, and "agbox resume" starts it with its files. A restart of the engine or the host makes a frozen sandbox STOPPED.`,
		suggestFor: []string{"freeze", "suspend"}, want: client.Paused, method: (*client.Client).PauseSandbox,
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.verbCommand(verb{
		name: "resume", short: "Start stopped or failed sandboxes again, unfreeze paused ones",
		long: `Start sandboxes again with the same containers and files; unfreeze paused ones. A failed sandbox can be resumed if its primary
container and those of its required services exist: a missing network is recreated, a missing container is not. "agbox describe" shows
what a resume would do.`,
		suggestFor: []string{"start", "restart", "unpause", "thaw"},
		want:       client.Ready, method: (*client.Client).RecoverSandbox, already: runsAlready,
	})
}

// runsAlready returns a message if the sandbox runs and its desired state is to run.
func runsAlready(sb *agboxv1.SandboxHandle) string {
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.GetDesiredState() == "" {
		return "is already running"
	}
	return ""
}

func (a *app) verbCommand(v verb) *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: v.name + " NAME...", Short: v.short, Long: v.long, SuggestFor: v.suggestFor, ValidArgsFunction: a.completeNames,
		Example: fmt.Sprintf("  agbox %s web\n  agbox %s web db --wait=false", v.name, v.name),
		Args:    atLeastOne("the name or ID of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.request(cmd.Context(), c, args, v, wait, timeout)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "return once it is done")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "with --wait: give up after this long")
	return cmd
}

// request sends all requests, then waits for all, so that they run in parallel.
func (a *app) request(ctx context.Context, c *client.Client, refs []string, v verb, wait bool, timeout time.Duration) error {
	var asked []*agboxv1.SandboxHandle
	failed := false
	for _, ref := range refs {
		sb, err := a.ask(ctx, c, ref, v)
		if client.IsUnavailable(err) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			a.complain(err)
			failed = true
			continue
		}
		if sb == nil {
			continue
		}
		if !wait {
			fmt.Fprintf(a.Out, "sandbox/%s %s requested\n", nameOrID(sb), v.name)
		}
		sb.State = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED // unknown since the request
		asked = append(asked, sb)
	}
	a.warnEngine(ctx, c)
	if wait {
		failed = a.waitAll(ctx, c, asked, v.want, timeout) || failed
	}
	return outcomeOf(ctx, failed)
}

// ask sends one request. It returns nil, after a message, if there is nothing to wait for.
func (a *app) ask(ctx context.Context, c *client.Client, ref string, v verb) (*agboxv1.SandboxHandle, error) {
	sb, err := a.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	err = v.method(c, ctx, sb.GetSandboxId())
	if !client.IsFailedPrecondition(err) {
		return sb, err
	}
	sb = again(ctx, c, sb)
	if v.already != nil && v.already(sb) != "" {
		fmt.Fprintf(a.Out, "sandbox/%s %s\n", nameOrID(sb), v.already(sb))
		return nil, nil
	}
	return nil, explain(v.name, sb, err)
}
