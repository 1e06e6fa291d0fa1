package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

type logsOptions struct {
	follow, stdout, stderr, raw, exitCode bool
	lines                                 lineOptions
}

func (a *app) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use: "logs (EXEC | NAME)", Short: "Show the output of a command, of a sandbox's main process, or of an agent's", ValidArgsFunction: perArgument(a.completeExecOrName),
		Long: `Show the output of a command: its stdout on stdout, its stderr on stderr. With the name of a sandbox, show the output of its main
process (the spec's "command") over all its starts, in the order in which it was written. With agent/NAME, or the name of an agent that no sandbox has, show the unchanged
output of the agent's newest process; "agbox agent conversation" shows its messages.

With --service, show the newest output of a service of the sandbox, over all its starts, up to 1 MiB. It stays readable until the sandbox
is deleted, also if the create failed.

On a terminal, escape sequences of the output are shown as text, unless --raw is given. A file or a pipe gets every byte unchanged.`,
		Example: "  agbox logs -f web\n  agbox logs web --since 10m --timestamps\n  agbox logs web --service db --tail 20 --timestamps\n  agbox logs --stderr agent/coder\n  agbox logs --stderr 0e12dd5b-58f1-4a5c-8d6b-3f5f9a1c2b3d",
		Args:    one("the ID of an exec, or the name of a sandbox or an agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.lines.parse(cmd); err != nil {
				return err
			}
			if o.stdout && o.stderr {
				return usagef(cmd, "expected --stdout or --stderr, or neither for both")
			}
			if o.exitCode && !o.follow {
				return usagef(cmd, "--exit-code needs -f")
			}
			if o.lines.service == "" {
				return a.logs(cmd.Context(), args[0], o)
			}
			if o.exitCode {
				return usagef(cmd, "--exit-code is for execs, not for services")
			}
			sb, err := a.sandboxKind().resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.sandboxLogs(cmd.Context(), sb.GetSandboxId(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow the output until the command ends")
	cmd.Flags().BoolVar(&o.stdout, "stdout", false, "only stdout")
	cmd.Flags().BoolVar(&o.stderr, "stderr", false, "only stderr")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "with -f: exit as the command of the exec did, like \"agbox exec\"")
	o.lines.bind(cmd)
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
	if o.lines.given() {
		return errors.New("--tail, --since and --timestamps are for main processes and services: the output of other commands is stored without times; " +
			"\"agbox logs EXEC | tail\" shows its last lines")
	}
	screens := screens{raw: o.raw, mode: termsafe.Plain}
	out, errOut := o.chosen(screens.before(a.Out), screens.before(a.Err))
	err := a.copyLogs(ctx, e, o.follow, out, errOut)
	if o.follow && err == nil {
		e, err = a.conn().GetExec(ctx, e.GetExecId())
	}
	if err = errors.Join(err, screens.close()); err != nil || !o.exitCode {
		return err
	}
	return execResult(e)
}

// chosen replaces the streams that the flags leave out by nil.
func (o logsOptions) chosen(out, errOut io.Writer) (io.Writer, io.Writer) {
	if o.stderr {
		out = nil
	}
	if o.stdout {
		errOut = nil
	}
	return out, errOut
}

// copyLogs copies the logs of an exec to the writers that are not nil, one after the other; with follow both as they grow.
func (a *app) copyLogs(ctx context.Context, e *agboxv1.ExecStatus, follow bool, out, errOut io.Writer) error {
	copying := make(chan error, 2)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := 0
	for _, log := range []struct {
		w      io.Writer
		stderr bool
	}{{out, false}, {errOut, true}} {
		if log.w == nil {
			continue
		}
		started++
		run := func() {
			_, err := a.conn().CopyExecLog(ctx, e.GetExecId(), log.stderr, 0, follow, log.w)
			copying <- err
		}
		if follow {
			go run()
		} else {
			run()
		}
	}
	var err error
	for range started {
		if one := <-copying; one != nil && err == nil {
			err = one
			cancel()
		}
	}
	return err
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
	return a.sandboxLogs(ctx, sb.GetSandboxId(), o)
}

// screens are the filters through which a command writes output of a sandbox to terminals.
type screens struct {
	raw  bool
	mode termsafe.Mode
	open []*termsafe.Writer
}

// before returns the stream with a filter in front of it if it is a terminal, and the stream itself for a file, a pipe, or under --raw.
func (s *screens) before(w io.Writer) io.Writer {
	w = termsafe.Unfiltered(w)
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
