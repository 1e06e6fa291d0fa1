package cli

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/internal/sandboxstate"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
)

type agentCreateOptions struct {
	spec                  *agboxv1.AgentSpec
	env, labels           []string
	startTimeout, timeout time.Duration
	stopped, dryRun, wait bool
}

func (a *app) agentCreateCommand() *cobra.Command {
	o := agentCreateOptions{spec: &agboxv1.AgentSpec{}}
	cmd := &cobra.Command{
		Use: "create NAME --sandbox SANDBOX [flags] -- COMMAND [ARG...]", SuggestFor: []string{"new", "run", "add"}, Short: "Create an agent in a sandbox",
		Long: `Create an agent in a sandbox. Its command starts when the sandbox is READY, and receives prompts in the format that --format names.

Fields without a flag, such as save_command and context, are set in a manifest: see config/examples/agent.yaml and "agbox apply -f".`,
		Example: "  agbox agent create coder --sandbox web -- my-agent --fast\n" +
			"  agbox agent create coder --sandbox web --format claude-stream-json --prompt 'Read TODO.md' --wait -- claude",
		Args:              afterDash,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.spec.Command = args[1:]
			if err := o.finish(cmd); err != nil {
				return err
			}
			return a.agentCreate(cmd.Context(), args[0], o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.spec.SandboxId, "sandbox", "", "name or ID of the sandbox (required)")
	flags.StringVar(&o.spec.Format, "format", "", "what it speaks: native (default), claude-stream-json or acp")
	flags.StringVar(&o.spec.Ready, "ready", "", "when it is ready: protocol (default), it says so; process, it was started")
	flags.StringVarP(&o.spec.WorkingDir, "workdir", "w", "", "directory to run in (default the sandbox's)")
	flags.StringVar(&o.spec.RestartPolicy, "restart", "", "on-failure (default), never or always")
	flags.StringVar(&o.spec.InitialPrompt, "prompt", "", "its first prompt")
	flags.StringVar(&o.spec.Nudge, "nudge", "", "the prompt that a busy agent gets when the daemon drains; none: it gets none (default: by --format)")
	flags.StringVar(&o.spec.OnInterrupted, "on-interrupted", "", "a prompt whose turn was cut off: retry (default), given again; hold, not")
	flags.Var(quantity.NewDurationFlag(&o.startTimeout, 0), "start-timeout", "from the start to ready (default 1m)")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "KEY=VALUE for the command; repeatable")
	flags.StringSliceVarP(&o.labels, "label", "l", nil, "key=value,...")
	flags.BoolVar(&o.stopped, "stopped", false, "do not start it; \"agbox agent start\" does")
	flags.BoolVar(&o.dryRun, "dry-run", false, "check everything, create nothing")
	flags.BoolVar(&o.wait, "wait", false, "return once it takes prompts")
	flags.Var(quantity.NewDurationFlag(&o.timeout, defaultWait), "timeout", "with --wait: give up after this long")
	onFlag(cmd, "sandbox", a.sandboxKind().names)
	completeFlag(cmd, "format", "native", "claude-stream-json", "acp")
	completeFlag(cmd, "ready", "protocol", "process")
	completeFlag(cmd, "restart", "on-failure", "never", "always")
	completeFlag(cmd, "on-interrupted", "retry", "hold")
	return cmd
}

// finish copies flags into the spec, and refuses combinations without a meaning.
func (o *agentCreateOptions) finish(cmd *cobra.Command) error {
	if o.spec.GetSandboxId() == "" {
		return usagef(cmd, "--sandbox is required: the name or ID of a sandbox")
	}
	if o.wait && (o.stopped || o.dryRun) {
		return usagef(cmd, "--wait waits for an agent that is started: leave out --stopped and --dry-run")
	}
	var err error
	if o.spec.Envs, err = parseEnv(cmd, o.env); err != nil {
		return err
	}
	if o.spec.Labels, err = parseLabels(cmd, o.labels); err != nil {
		return err
	}
	if o.stopped {
		o.spec.DesiredState = wantStopped
	}
	if cmd.Flags().Changed("start-timeout") {
		o.spec.StartTimeout = durationpb.New(o.startTimeout)
	}
	for _, text := range append([]string{o.spec.GetInitialPrompt(), o.spec.GetNudge(), o.spec.GetWorkingDir()}, append(o.spec.GetCommand(), o.env...)...) {
		if !utf8.ValidString(text) {
			return usagef(cmd, "%q is not UTF-8 text", text)
		}
	}
	return nil
}

func (a *app) agentCreate(ctx context.Context, name string, o agentCreateOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, o.spec.GetSandboxId())
	if err != nil {
		return err
	}
	o.spec.SandboxId = sb.GetSandboxId()
	req := &agboxv1.CreateAgentRequest{Spec: o.spec, AgentId: uuid.NewString(), Name: name, DryRun: o.dryRun}
	if err := validate.CreateAgent(req).Err(); err != nil {
		return err
	}
	one, err := a.conn().CreateAgent(ctx, req)
	switch {
	case client.Reason(err) == "AGENT_NAME_ALREADY_EXISTS":
		return fmt.Errorf("agent %s already exists; choose another name, or \"agbox agent delete %s\" removes it with its conversation", name, name)
	case err != nil:
		return err
	case o.dryRun:
		fmt.Fprintf(a.Out, "agent/%s created (dry run)\n", name)
		return nil
	}
	fmt.Fprintf(a.Out, "agent/%s created\n", name)
	a.hint(sleepingSandbox(sb))
	if !o.wait {
		return nil
	}
	return outcomeOf(ctx, waitAll(ctx, a, a.agentKind(), []*agboxv1.AgentHandle{one}, string(client.AgentRunning), o.timeout))
}

// sleepingSandbox returns a note if the agents of a sandbox start only after a user resumes it, or "".
func sleepingSandbox(sb *agboxv1.SandboxHandle) string {
	return textIf(sandboxstate.IsResumable(sb.GetState()), fmt.Sprintf("note: sandbox %s is %s; its agents are started when it is READY; %s",
		nameOrID(sb), enum.Word(sb.GetState()), resumeHint(sb)))
}
