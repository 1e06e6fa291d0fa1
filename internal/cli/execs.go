package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/wait"
)

const commandWidth = 40

func (a *app) execsCommand() *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use: "execs [NAME]", Short: "List running commands", ValidArgsFunction: a.sandboxKind().first,
		Args: atMostOne("at most the name or ID of one sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
		sb, err := a.sandboxKind().resolve(ctx, args[0])
		if err != nil {
			return err
		}
		id = sb.GetSandboxId()
	}
	all, err := a.live(ctx)
	if err != nil {
		return err
	}
	execs, err := a.conn().ListActiveExecs(ctx, id)
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
	a.printExecs(execs, sandboxNames(all), "")
	return nil
}

func (a *app) printExecsAs(execs []*agboxv1.ExecStatus, output string) error {
	if output == "json" {
		return printLines(a.Out, execs)
	}
	for _, e := range execs {
		fmt.Fprintln(a.Out, e.GetExecId())
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
		sandbox := cmp.Or(names[e.GetSandboxId()], e.GetSandboxId())
		row(e.GetExecId(), clip(sandbox, nameWidth), age(e.GetCreatedAt().AsTime(), time.Now()), commandLine(e.GetCommand()))
	}
	t.write(a.Out)
}

func commandLine(command []string) string {
	return clip(oneLine(strings.Join(command, " ")), commandWidth)
}

func (a *app) cancelCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "cancel EXEC", Short: "Cancel a running command: TERM, then KILL after a grace period", ValidArgsFunction: perArgument(a.completeExecs),
		Example: "  agbox cancel --wait 0e12dd5b-58f1-4a5c-8d6b-3f5f9a1c2b3d",
		Args:    one("the ID of an exec; \"agbox execs\" lists them"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.cancel(cmd.Context(), args[0], wait, timeout) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return once all its processes have ended")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "with --wait: give up after this long")
	return cmd
}

func (a *app) cancel(ctx context.Context, execID string, wait bool, timeout time.Duration) error {
	if err := a.conn().CancelExec(ctx, execID); err != nil {
		return a.notAnExec(ctx, execID, err)
	}
	a.hint(given(fmt.Sprintf("exec/%s ends later: ", execID), a.frozenWith(ctx, execID), ""))
	if !wait {
		fmt.Fprintf(a.Out, "exec/%s cancelling\n", execID)
		return nil
	}
	ctx, done := context.WithTimeout(ctx, timeout)
	defer done()
	e, err := a.conn().WaitExec(ctx, execID)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("exec %s has not ended after %s; the cancel stays in effect", execID, timeout)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "exec/%s %s\n", execID, strings.ToLower(enum.Word(e.GetState())))
	return nil
}

// notAnExec adds a hint to the error if ref is a sandbox.
func (a *app) notAnExec(ctx context.Context, ref string, err error) error {
	if !client.IsNotFound(err) {
		return err
	}
	sb, lookErr := a.sandboxKind().resolve(ctx, ref)
	if lookErr != nil {
		return fmt.Errorf("%w; \"agbox execs\" lists running ones, \"agbox events NAME\" all", err)
	}
	return fmt.Errorf("%s is a sandbox, not an exec; \"agbox execs %s\" lists running ones, \"agbox events %s\" all", ref, nameOrID(sb), nameOrID(sb))
}

// requestCancel retries a cancel until it is recorded, or prints the command for it.
func (a *app) requestCancel(execID string) {
	ctx, cancel := context.WithTimeout(context.Background(), acceptPatience)
	defer cancel()
	for {
		err := a.conn().CancelExec(ctx, execID)
		if err == nil || client.IsNotFound(err) || client.IsFailedPrecondition(err) {
			return
		}
		if !client.IsUnavailable(err) || wait.For(ctx, retryEvery) != nil {
			a.complain(fmt.Errorf("cancel exec %s: %w; it may still run, \"agbox cancel %s\" ends it", execID, err, execID))
			return
		}
	}
}

// cancelAttached cancels the exec and gives up once its end is overdue; at once if its sandbox is frozen, because then it can't end.
func (a *app) cancelAttached(execID string, giveUp func()) {
	a.requestCancel(execID)
	patience := cancelPatience
	if a.frozenNow(execID) != "" {
		patience = 0
	}
	time.AfterFunc(patience, giveUp)
}

// frozenWith returns how to thaw the sandbox of an exec; empty if the sandbox is not frozen or its state is unknown.
func (a *app) frozenWith(ctx context.Context, execID string) string {
	e, err := a.conn().GetExec(ctx, execID)
	if err != nil || e.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
		return ""
	}
	sb, err := a.conn().GetSandbox(ctx, e.GetSandboxId())
	if err != nil || sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_PAUSED || sb.GetDemotedAt() != nil || sb.GetDesiredState() != "" {
		return ""
	}
	return fmt.Sprintf("sandbox %s is PAUSED; \"agbox resume %s\" thaws it", nameOrID(sb), nameOrID(sb))
}

// frozenNow is frozenWith after a signal: the user waits for no more than answerPatience.
func (a *app) frozenNow(execID string) string {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	return a.frozenWith(ctx, execID)
}

// notEnded says that a cancelled exec has not ended yet, and why.
func notEnded(execID, frozen string) error {
	if frozen != "" {
		return fmt.Errorf("exec %s is cancelled, but has not ended: %s", execID, frozen)
	}
	return fmt.Errorf("exec %s has not ended yet; \"agbox cancel --wait %s\" waits for it", execID, execID)
}
