package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/cli/termsafe"
	"github.com/agbox/agbox/internal/sandboxstate"
)

type logsOptions struct {
	follow, stdout, stderr, raw, exitCode bool
	service                               serviceLogOptions
}

func (a *app) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use: "logs (EXEC | NAME)", Short: "Show the output of a command, of a sandbox's main process, or of an agent's", ValidArgsFunction: perArgument(a.completeExecOrName),
		Long: `Show the output of a command: its stdout on stdout, its stderr on stderr. With the name of a sandbox, show the output of its main
process (the spec's "command") over all its starts. With agent/NAME, or the name of an agent that no sandbox has, show the unchanged
output of the agent's newest process; "agbox agent conversation" shows its messages.

With --service, show the newest output of a service of the sandbox, over all its starts, up to 1 MiB. It stays readable until the sandbox
is deleted, also if the create failed.

On a terminal, escape sequences of the output are shown as text, unless --raw is given. A file or a pipe gets every byte unchanged.`,
		Example: "  agbox logs -f web\n  agbox logs web --service db --tail 20 --timestamps\n  agbox logs --stderr agent/coder\n  agbox logs --stderr 0e12dd5b-58f1-4a5c-8d6b-3f5f9a1c2b3d",
		Args:    one("the ID of an exec, or the name of a sandbox or an agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.service.parse(cmd); err != nil {
				return err
			}
			if o.stdout && o.stderr {
				return usagef(cmd, "expected --stdout or --stderr, or neither for both")
			}
			if o.exitCode && !o.follow {
				return usagef(cmd, "--exit-code needs -f")
			}
			if o.service.name != "" && o.exitCode {
				return usagef(cmd, "--exit-code is for execs, not for services")
			}
			if o.service.name != "" {
				return a.serviceLogs(cmd.Context(), args[0], o)
			}
			return a.logs(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow the output until the command ends")
	cmd.Flags().BoolVar(&o.stdout, "stdout", false, "only stdout")
	cmd.Flags().BoolVar(&o.stderr, "stderr", false, "only stderr")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "with -f: exit as the command of the exec did, like \"agbox exec\"")
	o.service.bind(cmd)
	cmd.Flags().BoolVar(&o.raw, "raw", false, "write escape sequences to the terminal unchanged")
	return cmd
}

func (a *app) logs(ctx context.Context, ref string, o logsOptions) error {
	e, err := a.findExec(ctx, ref)
	if !client.IsNotFound(err) {
		if err != nil {
			return err
		}
		return a.execLogs(ctx, e, o)
	}
	sb, lookErr := a.sandboxKind().resolve(ctx, ref)
	switch {
	case lookErr == nil:
		return a.mainLogs(ctx, sb.GetSandboxId(), o)
	case !a.sandboxKind().isNotFound(lookErr):
		return lookErr
	}
	one, lookErr := a.agentKind().resolve(ctx, ref)
	switch {
	case lookErr == nil:
		return a.agentLogs(ctx, one, o)
	case !a.agentKind().isNotFound(lookErr):
		return lookErr
	}
	return fmt.Errorf("%w, and no sandbox or agent has this name; \"agbox execs --all\" lists commands", err)
}

// agentLogs shows the output of an agent's newest process.
func (a *app) agentLogs(ctx context.Context, one *agboxv1.AgentHandle, o logsOptions) error {
	if one.GetIncarnation() == 0 {
		return fmt.Errorf("agent %s was never started, so it has no logs; \"agbox explain agent/%s\" shows what it waits for", agentName(one), agentName(one))
	}
	e, err := a.conn().GetExec(ctx, agentExec(one))
	if client.IsNotFound(err) {
		return fmt.Errorf("the logs of agent %s were removed with its sandbox", agentName(one))
	}
	if err != nil {
		return err
	}
	return a.execLogs(ctx, e, o)
}

// execLogs shows the output of one exec; with -f until it ends.
func (a *app) execLogs(ctx context.Context, e *agboxv1.ExecStatus, o logsOptions) error {
	running := e.GetState() == agboxv1.ExecState_EXEC_STATE_RUNNING
	if err := logsGone(e, running); err != nil {
		return err
	}
	end := ended()
	if o.follow && running {
		end = a.awaitExec(ctx, e.GetExecId())
	}
	if err := a.printLogs(ctx, e.GetStdoutLogPath(), e.GetStderrLogPath(), o, end); err != nil || !o.exitCode {
		return err
	}
	if end.exec != nil {
		e = end.exec
	}
	return execResult(e)
}

// mainLogs shows the output of the main process; with -f until the sandbox no longer runs.
func (a *app) mainLogs(ctx context.Context, id string, o logsOptions) error {
	if o.exitCode {
		return errors.New("--exit-code is for execs: the main process of a sandbox may run several times; \"agbox describe\" shows how it ended")
	}
	sb, err := a.conn().GetSandbox(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case sb.GetStdoutLogPath() == "":
		return fmt.Errorf("sandbox %s has no main process: its spec has no \"command\"; \"agbox execs %s\" lists running execs, \"agbox events %s\" all",
			nameOrID(sb), nameOrID(sb), nameOrID(sb))
	case sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		return fmt.Errorf("the logs of sandbox %s were removed with it", nameOrID(sb))
	}
	end := ended()
	if o.follow && sandboxstate.IsUp(sb.GetState()) { // a frozen one may continue
		end = a.awaitRest(ctx, sb)
	}
	return a.printLogs(ctx, sb.GetStdoutLogPath(), sb.GetStderrLogPath(), o, end)
}

// mayRun reports whether containers of a sandbox may run.
func mayRun(s agboxv1.SandboxState) bool {
	return sandboxstate.IsUp(s) || s == agboxv1.SandboxState_SANDBOX_STATE_PENDING
}

// awaitRest waits in the background until the sandbox no longer runs, or ctx ends.
func (a *app) awaitRest(ctx context.Context, sb *agboxv1.SandboxHandle) *execEnd {
	return background(func() (*agboxv1.ExecStatus, error) {
		for e, err := range a.conn().Events(ctx, sb.GetSandboxId(), client.EventOptions{From: sb.GetLastEventSequence(), Reconnect: true}) {
			state := e.GetSandboxState()
			if err != nil || state != agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED && !mayRun(state) {
				return nil, err
			}
		}
		return nil, nil
	})
}

// printLogs shows two logs until their writer ends.
func (a *app) printLogs(ctx context.Context, stdout, stderr string, o logsOptions, end *execEnd) error {
	f := follower{}
	screens := screens{raw: o.raw, mode: termsafe.Plain}
	add := func(path string, out io.Writer) {
		f.tails = append(f.tails, &tail{path: path, out: screens.before(out)})
	}
	if !o.stderr {
		add(stdout, a.Out)
	}
	if !o.stdout {
		add(stderr, a.Err)
	}
	if err := errors.Join(f.run(ctx, end.done), screens.close()); err != nil {
		return err
	}
	return end.err
}

// logsGone returns an error if the logs were removed with the sandbox or by a process in it; a command without output has empty logs.
func logsGone(e *agboxv1.ExecStatus, running bool) error {
	if running || e.GetStartedAt() == nil {
		return nil
	}
	if _, err := os.Lstat(e.GetStdoutLogPath()); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the logs of exec %s were removed with sandbox %s, or by a process in it", e.GetExecId(), e.GetSandboxId())
	}
	return nil
}

// screens are the filters through which a command writes output of a sandbox to terminals.
type screens struct {
	raw  bool
	mode termsafe.Mode
	open []*termsafe.Writer
}

// before returns w with a filter in front of it if it is a terminal, and w itself for a file, a pipe, or under --raw.
func (s *screens) before(w io.Writer) io.Writer {
	if s.raw || !isTerminal(w) {
		return w
	}
	f := termsafe.New(w, s.mode)
	s.open = append(s.open, f)
	return f
}

// close writes the bytes that the filters have held back.
func (s *screens) close() error {
	var errs []error
	for _, f := range s.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
