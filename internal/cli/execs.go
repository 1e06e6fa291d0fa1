package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

const commandWidth = 40

func (a *app) execsCommand() *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use: "execs [NAME]", Short: "List the commands that run now", ValidArgsFunction: a.completeNames,
		Args: atMostOne("at most the name or ID of one sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, *output, "json", "name"); err != nil {
				return err
			}
			return a.execs(cmd.Context(), args, *output)
		},
	}
	output = outputFlag(cmd, "json", "name")
	return cmd
}

// execs prints a table, the bare IDs ("name"), or one JSON object per line.
func (a *app) execs(ctx context.Context, args []string, output string) error {
	id := ""
	if len(args) == 1 {
		sb, err := a.resolve(ctx, args[0])
		if err != nil {
			return err
		}
		id = sb.GetSandboxId()
	}
	all, err := a.live(ctx)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, sb := range all {
		names[sb.GetSandboxId()] = nameOrID(sb)
	}
	execs, err := a.conn.ListActiveExecs(ctx, id)
	if err != nil {
		return err
	}
	if output != "" {
		return a.printExecsAs(execs, output)
	}
	if len(execs) == 0 {
		fmt.Fprintln(a.Err, "no active execs")
		return nil
	}
	a.printExecs(execs, names, "")
	return nil
}

func (a *app) printExecsAs(execs []*agboxv1.ExecStatus, output string) error {
	enc := json.NewEncoder(a.Out) // one object a line
	for _, e := range execs {
		if output == "name" {
			fmt.Fprintln(a.Out, e.GetExecId())
			continue
		}
		text, err := protoJSON.Marshal(e)
		if err == nil {
			err = enc.Encode(json.RawMessage(text))
		}
		if err != nil {
			return fmt.Errorf("print exec %s: %w", e.GetExecId(), err)
		}
	}
	return nil
}

// printExecs prints a table; with names also the sandbox of each.
func (a *app) printExecs(execs []*agboxv1.ExecStatus, names map[string]string, indent string) {
	t := table{}
	row := func(id, sandbox, age, command string) {
		cells := []string{indent + id, sandbox, age, command}
		if names == nil {
			cells = []string{indent + id, age, command}
		}
		t.add(cells...)
	}
	row("EXEC", "SANDBOX", "AGE", "COMMAND")
	for _, e := range execs {
		sandbox := e.GetSandboxId()
		if name, ok := names[sandbox]; ok {
			sandbox = name
		}
		command := clip(oneLine(strings.Join(e.GetCommand(), " ")), commandWidth)
		row(e.GetExecId(), clip(sandbox, nameWidth), age(e.GetCreatedAt().AsTime(), time.Now()), command)
	}
	t.print(a.Out)
}

func (a *app) cancelCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "cancel EXEC", Short: "End a running command: TERM, and KILL after a grace period",
		Args: one("the ID of an exec; \"agbox execs\" lists them"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.cancel(cmd.Context(), args[0], wait, timeout) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return once all its processes are gone")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "with --wait: give up after this long")
	return cmd
}

func (a *app) cancel(ctx context.Context, execID string, wait bool, timeout time.Duration) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := c.CancelExec(ctx, execID); err != nil {
		return a.notAnExec(ctx, execID, err)
	}
	if !wait {
		fmt.Fprintf(a.Out, "exec/%s cancelling\n", execID)
		return nil
	}
	ctx, done := context.WithTimeout(ctx, timeout)
	defer done()
	e, err := c.WaitExec(ctx, execID)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("exec %s has not ended after %s; the cancel goes on", execID, timeout)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "exec/%s %s\n", execID, strings.ToLower(client.ExecStateName(e.GetState())))
	return nil
}

type logsOptions struct{ follow, stdout, stderr bool }

func (a *app) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use: "logs EXEC", Short: "Show the output of a command",
		Long: "Show what a command wrote: its stdout on stdout, its stderr on stderr.",
		Args: one("the ID of an exec; \"agbox events NAME\" shows those of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.stdout && o.stderr {
				return usagef(cmd, "expected --stdout or --stderr, or neither for both")
			}
			return a.logs(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the command ends")
	cmd.Flags().BoolVar(&o.stdout, "stdout", false, "only stdout")
	cmd.Flags().BoolVar(&o.stderr, "stderr", false, "only stderr")
	return cmd
}

func (a *app) logs(ctx context.Context, execID string, o logsOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	e, err := c.GetExec(ctx, execID)
	if err != nil {
		return a.notAnExec(ctx, execID, err)
	}
	running := e.GetState() == agboxv1.ExecState_EXEC_STATE_RUNNING
	if err := logsGone(e, running); err != nil {
		return err
	}
	f := follower{quit: ctx.Done()}
	if !o.stderr {
		f.tails = append(f.tails, &tail{path: e.GetStdoutLogPath(), out: a.Out})
	}
	if !o.stdout {
		f.tails = append(f.tails, &tail{path: e.GetStderrLogPath(), out: a.Err})
	}
	end := &execEnd{done: make(chan struct{})}
	if o.follow && running {
		end = awaitExec(ctx, c, execID)
	} else {
		close(end.done)
	}
	switch err := f.run(end.done); {
	case errors.Is(err, errQuit):
		return ctx.Err()
	case err != nil:
		return err
	}
	return end.err
}

// notAnExec helps who gave the name of a sandbox where an exec is asked for.
func (a *app) notAnExec(ctx context.Context, ref string, err error) error {
	if !client.IsNotFound(err) {
		return err
	}
	sb, lookErr := a.resolve(ctx, ref)
	if lookErr != nil {
		return fmt.Errorf("%w; \"agbox execs\" lists those that run, \"agbox events NAME\" all", err)
	}
	return fmt.Errorf("%s is a sandbox, not an exec; \"agbox execs %s\" lists those that run, \"agbox events %s\" all", ref, nameOrID(sb), nameOrID(sb))
}

// logsGone tells a command without output from one whose logs went with its sandbox, or were removed from inside it.
func logsGone(e *agboxv1.ExecStatus, running bool) error {
	if running || e.GetStartedAt() == nil {
		return nil
	}
	if _, err := os.Lstat(e.GetStdoutLogPath()); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the logs of exec %s are gone: they were removed with sandbox %s, or by a process in it", e.GetExecId(), e.GetSandboxId())
	}
	return nil
}
