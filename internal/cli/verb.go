package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
)

// verb is a request to named objects of one kind.
type verb[H handle] struct {
	name, short, long, example string
	suggestFor                 []string
	// want is the condition that --wait waits for, byDefault whether that is the default. Empty: there is nothing to wait for.
	want      string
	byDefault bool
	method    func(*client.Client, context.Context, string) error
	// running reports whether a refused request has nothing to do because it already runs. Nil: every refusal is an error.
	running func(H) bool
	// missing adds --ignore-not-found.
	missing bool
	// doing is printed for an accepted request without --wait; "NAME requested" if empty.
	doing string
	// accepted is called for each accepted request. It may be nil.
	accepted func(H)
}

var sandboxVerbs = []verb[*agboxv1.SandboxHandle]{
	{
		name: "stop", short: "Stop sandboxes; their files stay, running execs are cancelled",
		want: string(client.Stopped), byDefault: true, method: (*client.Client).StopSandbox,
		example: "  agbox stop web\n  agbox stop web db --wait=false",
	},
	{
		name: "pause", short: "Freeze sandboxes; their processes keep their memory until \"resume\"",
		long: `Freeze sandboxes: their processes do not run, and keep their memory until "agbox resume". After pause.freeze_duration, or when
more than pause.max_frozen are frozen, the daemon stops the sandbox that was paused first to free its memory. That ends its commands;
it stays PAUSED, and "agbox resume" starts it with its files. A restart of the engine or the host makes a frozen sandbox STOPPED.`,
		suggestFor: []string{"freeze", "suspend"}, want: string(client.Paused), byDefault: true, method: (*client.Client).PauseSandbox,
		example: "  agbox pause web\n  agbox pause web db --wait=false",
	},
	{
		name: "resume", short: "Start stopped or failed sandboxes again, unfreeze paused ones",
		long: `Start sandboxes again with the same containers and files; unfreeze paused ones. A failed sandbox can be resumed if its primary
container and those of its required services exist: a missing network is recreated, a missing container is not. "agbox describe" shows
what a resume would do.`,
		suggestFor: []string{"start", "restart", "unpause", "thaw"}, want: string(client.Ready), byDefault: true,
		method: (*client.Client).RecoverSandbox, running: runs,
		example: "  agbox resume web\n  agbox resume web db --wait=false",
	},
}

// runs is for a READY sandbox without a pending request.
func runs(sb *agboxv1.SandboxHandle) bool {
	return sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.GetDesiredState() == ""
}

var agentVerbs = []verb[*agboxv1.AgentHandle]{
	{
		name: "stop", short: "End the processes of agents; their conversations and queues stay",
		long: `End the processes of agents: TERM, and KILL after a grace period. A turn in progress is cut off; "agbox drain" and a stop of
the sandbox let it finish. Conversations stay, and prompts are queued until "agbox agent start".`,
		suggestFor: []string{"pause"}, want: string(client.AgentStopped), byDefault: true, method: (*client.Client).StopAgent,
		example: "  agbox agent stop coder",
	},
	{
		name: "start", short: "Start stopped and failed agents; they receive their conversation",
		suggestFor: []string{"resume", "restart"}, want: string(client.AgentRunning), byDefault: true, method: (*client.Client).StartAgent,
		example: "  agbox agent start coder",
	},
	{
		name: "interrupt", short: "Ask busy agents to end their turn; the prompt is not given again",
		suggestFor: []string{"cancel", "abort"}, method: (*client.Client).InterruptAgent,
		example: "  agbox agent interrupt coder",
	},
	deleteAgents,
}

var deleteAgents = verb[*agboxv1.AgentHandle]{
	name: "delete", short: "Remove agents with their conversations",
	long:       "Remove agents: their processes, conversations and queued prompts. What they did in the sandbox stays. The name is free at once.",
	suggestFor: []string{"rm", "remove", "kill"}, want: string(client.AgentDeleted), method: (*client.Client).DeleteAgent, missing: true,
	example: "  agbox agent delete coder",
}

type verbOptions struct {
	wait, ignore bool
	timeout      time.Duration
	labels       *selector
}

// addVerbs adds a command for each verb.
func addVerbs[H handle](parent *cobra.Command, a *app, k kind[H], verbs []verb[H]) {
	for _, v := range verbs {
		var o verbOptions
		cmd := &cobra.Command{
			Use: v.name + " (NAME... | -l SELECTOR)", Short: v.short, Long: v.long, SuggestFor: v.suggestFor, ValidArgsFunction: k.names, Example: v.example,
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := namesOrSelector(cmd, args, o.labels, k.one); err != nil {
					return err
				}
				return request(cmd.Context(), a, k, args, v, o)
			},
		}
		o.labels = a.selectorFlag(cmd, "all with these labels")
		if v.want != "" {
			cmd.Flags().BoolVar(&o.wait, "wait", v.byDefault, "return once it is done")
			cmd.Flags().Var(quantity.NewDurationFlag(&o.timeout, defaultWait), "timeout", "with --wait: give up after this long")
		}
		if v.missing {
			cmd.Flags().BoolVar(&o.ignore, "ignore-not-found", false, "a missing "+k.word+" is no error")
		}
		parent.AddCommand(cmd)
	}
}

// find resolves references. It prints errors and continues. A reference that names no object is an error if missing is nil; otherwise
// missing is called.
func find[H handle](ctx context.Context, a *app, k kind[H], refs []string, missing func(ref string)) (found []H, failed bool, err error) {
	failed, err = forEach(ctx, refs, func(ref string) error {
		one, err := k.resolve(ctx, ref)
		switch {
		case err == nil:
			found = append(found, one)
		case missing != nil && k.isNotFound(err):
			missing(ref)
			return nil
		}
		return err
	}, func(_ string, err error) { a.complain(err) })
	return found, failed, err
}

// request sends a request to each of the named objects.
func request[H handle](ctx context.Context, a *app, k kind[H], refs []string, v verb[H], o verbOptions) error {
	var missing func(string)
	if o.ignore {
		missing = func(string) {}
	}
	found, failed, err := find(ctx, a, k, refs, missing)
	if o.labels.given() {
		found, err = k.selected(ctx, o.labels)
		found = slices.DeleteFunc(found, k.deleting)
		if err == nil && len(found) == 0 {
			fmt.Fprintln(a.Err, k.noneSelected())
		}
	}
	if err != nil {
		return err
	}
	return requestAll(ctx, a, k, found, failed, v, o)
}

// requestAll sends all requests before it waits for any, so that the objects change side by side. With failed it fails in any case.
func requestAll[H handle](ctx context.Context, a *app, k kind[H], all []H, failed bool, v verb[H], o verbOptions) error {
	var asked []H
	refused, err := forEach(ctx, all, func(one H) error {
		pending, err := ask(ctx, a, k, one, v)
		if pending {
			asked = append(asked, one)
		}
		return err
	}, func(_ H, err error) { a.complain(err) })
	if err != nil {
		printRequests(a, k, asked, v, o)
		return err
	}
	a.warnEngine(ctx)
	return awaitRequests(ctx, a, k, asked, failed || refused, v, o)
}

// awaitRequests waits with --wait, or prints the accepted requests.
func awaitRequests[H handle](ctx context.Context, a *app, k kind[H], asked []H, failed bool, v verb[H], o verbOptions) error {
	printRequests(a, k, asked, v, o)
	if o.wait {
		failed = waitAll(ctx, a, k, asked, v.want, o.timeout) || failed
	}
	return outcomeOf(ctx, failed)
}

// printRequests prints the accepted requests, unless --wait prints how they ended.
func printRequests[H handle](a *app, k kind[H], asked []H, v verb[H], o verbOptions) {
	if o.wait {
		return
	}
	for _, one := range asked {
		fmt.Fprintf(a.Out, "%s %s\n", k.label(one), cmp.Or(v.doing, v.name+" requested"))
	}
}

// forEach calls do for each item. It complains of an error and continues, unless the next call would fail too.
func forEach[T any](ctx context.Context, items []T, do func(T) error, complain func(T, error)) (failed bool, err error) {
	for _, item := range items {
		err := do(item)
		switch {
		case err == nil:
		case client.IsUnavailable(err) || ctx.Err() != nil:
			return true, err
		default:
			complain(item, err)
			failed = true
		}
	}
	return failed, nil
}

// ask sends one request. pending is false if there is nothing to wait for, which ask has printed.
func ask[H handle](ctx context.Context, a *app, k kind[H], one H, v verb[H]) (pending bool, err error) {
	err = v.method(a.conn(), ctx, k.id(one))
	if v.running != nil && client.IsFailedPrecondition(err) {
		if now, readErr := k.read(ctx, k.id(one)); readErr == nil && v.running(now) {
			fmt.Fprintf(a.Out, "%s is already running\n", k.label(one))
			return false, nil
		}
	}
	if err != nil {
		return false, k.refused(ctx, v.name, one, err)
	}
	if v.accepted != nil {
		v.accepted(one)
	}
	return true, nil
}
