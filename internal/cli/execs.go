package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/internal/wait"
)

const commandWidth = 40

func (a *app) execsCommand() *cobra.Command {
	var o *output
	var all bool
	var labels *selector
	cmd := &cobra.Command{
		Use: "execs [NAME | -l SELECTOR]", Short: "List running commands, with --all also ended ones", ValidArgsFunction: a.sandboxKind().first,
		Long: `List running commands: of one sandbox, or of all. --all lists also those that have ended, newest first, as long as the history of
their sandbox is kept.`,
		Example: "  agbox execs\n  agbox execs web --all",
		Args:    atMostOne("at most the name or ID of one sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && labels.given() {
				return usagef(cmd, "expected a name or -l, not both")
			}
			return a.execs(cmd.Context(), args, labels, all, o)
		},
	}
	o = outputFlag(cmd, append([]string{"wide"}, listFormats...)...)
	labels = a.selectorFlag(cmd, "only those of sandboxes with these labels")
	cmd.Flags().BoolVar(&all, "all", false, "also ended ones, while the history of their sandbox is kept")
	return cmd
}

// execs prints a table, the bare IDs ("name"), one JSON object per line, or what a template makes of all.
func (a *app) execs(ctx context.Context, args []string, labels *selector, ended bool, o *output) error {
	id := ""
	if len(args) == 1 {
		sb, err := a.sandboxKind().resolve(ctx, args[0])
		if err != nil {
			return err
		}
		id = sb.GetSandboxId()
	}
	equal, _ := labels.equal()
	sandboxes, err := a.conn().ListSandboxes(ctx, ended, equal)
	if err != nil {
		return err
	}
	names := sandboxNames(having(labels, sandboxes))
	list := a.conn().ListActiveExecs
	if ended {
		list = a.history
	}
	execs, err := list(ctx, id)
	if err != nil {
		return err
	}
	if labels.given() {
		execs = slices.DeleteFunc(execs, func(e *agboxv1.ExecStatus) bool { return names[e.GetSandboxId()] == "" })
	}
	width := commandWidth
	if o.format == "wide" {
		width = math.MaxInt
	}
	switch {
	case o.format == "name":
		for _, e := range execs {
			fmt.Fprintln(a.Out, e.GetExecId())
		}
	case o.given():
		return printList(a, execs, o)
	case len(execs) == 0:
		fmt.Fprintln(a.Err, textIf(!ended, "no active execs; --all lists ended ones")+textIf(ended, "no execs"))
	case ended:
		a.printHistory(execs, names, width)
	default:
		a.printExecs(execs, names, "", width)
	}
	return nil
}

// history returns the execs of a sandbox, or of all, newest first.
func (a *app) history(ctx context.Context, sandboxID string) ([]*agboxv1.ExecStatus, error) {
	execs, err := a.conn().ListExecs(ctx, sandboxID, "")
	slices.SortStableFunc(execs, func(x, y *agboxv1.ExecStatus) int {
		return y.GetCreatedAt().AsTime().Compare(x.GetCreatedAt().AsTime())
	})
	return execs, err
}

// printHistory prints a table of running and ended execs.
func (a *app) printHistory(execs []*agboxv1.ExecStatus, names map[string]string, width int) {
	t := table{}
	t.add("EXEC", "SANDBOX", "STATE", "EXIT", "CREATED", "TOOK", "COMMAND")
	for _, e := range execs {
		sandbox := cmp.Or(names[e.GetSandboxId()], e.GetSandboxId())
		t.add(e.GetExecId(), clip(sandbox, nameWidth), execState(e), exitText(e), e.GetCreatedAt().AsTime().Local().Format(time.DateTime), took(e), commandLine(e.GetCommand(), width))
	}
	t.write(a.Out)
}

// execState is the state, or the code of a failure that is not that of the command.
func execState(e *agboxv1.ExecStatus) string {
	if code := strings.TrimPrefix(e.GetErrorCode(), "EXEC_"); code != "" && code != "RUN_FAILED" {
		return code
	}
	return enum.Word(e.GetState())
}

// exitText is the exit code of a command that ran and has ended, otherwise "-".
func exitText(e *agboxv1.ExecStatus) string {
	if e.GetStartedAt() == nil || e.GetEndedAt() == nil {
		return "-"
	}
	return strconv.Itoa(int(e.GetExitCode()))
}

// took is how long a command ran, if it ran and has ended, otherwise "-".
func took(e *agboxv1.ExecStatus) string {
	if e.GetStartedAt() == nil || e.GetEndedAt() == nil {
		return "-"
	}
	return e.GetEndedAt().AsTime().Sub(e.GetStartedAt().AsTime()).Round(time.Millisecond).String()
}

// findExec returns the exec of an ID or of its first characters; "exec/" may precede it. Errors: EXEC_NOT_FOUND; an ambiguous prefix.
func (a *app) findExec(ctx context.Context, ref string) (*agboxv1.ExecStatus, error) {
	ref = bare(kindExec, ref)
	if ref == "" {
		return nil, errors.New("expected the ID of an exec, got an empty word; \"agbox execs --all\" lists them")
	}
	e, err := a.conn().GetExec(ctx, ref)
	if !client.IsNotFound(err) || len(ref) < minPrefix {
		return e, err
	}
	found, listErr := a.conn().ListExecs(ctx, "", ref)
	switch {
	case listErr != nil:
		return nil, listErr
	case len(found) == 0:
		return nil, err
	case len(found) > 1:
		return nil, fmt.Errorf("%q is ambiguous: the IDs of %d execs start with it; write more of the ID", ref, len(found))
	}
	return found[0], nil
}

// describeExec prints everything about one exec; without -o without the values of its environment.
func (a *app) describeExec(ctx context.Context, ref string, o *output) error {
	e, err := a.findExec(ctx, ref)
	if err != nil {
		return a.notAnExec(ctx, ref, err)
	}
	if o.given() {
		text, err := manifest.JSON(e)
		if err != nil {
			return err
		}
		return a.printAs(text, o)
	}
	a.fact("ID", e.GetExecId())
	a.fact("Sandbox", e.GetSandboxId())
	a.fact("State", execState(e))
	a.fact("Exit code", exitText(e))
	a.factIf("Error", termsafe.Line(joinError(e.GetErrorCode(), e.GetError())))
	a.fact("Command", termsafe.Line(fmt.Sprintf("%q", e.GetCommand())))
	a.factIf("Directory", termsafe.Line(e.GetCwd()))
	a.factIf("User", termsafe.Line(e.GetUser()))
	a.factIf("Envs", termsafe.Line(strings.Join(slices.Sorted(maps.Keys(e.GetEnvOverrides())), ", ")))
	a.factIf("Timeout", textIf(e.GetTimeout() != nil, e.GetTimeout().AsDuration().String()))
	a.fact("Created", when(e.GetCreatedAt()))
	a.factIf("Started", when(e.GetStartedAt()))
	a.factIf("Ended", when(e.GetEndedAt()))
	a.fact("Took", took(e))
	a.fact("Stdout", e.GetStdoutLogPath()+dropped(e.GetStdoutDroppedBytes()))
	a.fact("Stderr", e.GetStderrLogPath()+dropped(e.GetStderrDroppedBytes()))
	return nil
}

func dropped(n int64) string { return textIf(n > 0, fmt.Sprintf(" (%d bytes were dropped)", n)) }

// printExecs prints a table; with names also the sandbox of each.
func (a *app) printExecs(execs []*agboxv1.ExecStatus, names map[string]string, indent string, width int) {
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
		row(e.GetExecId(), clip(sandbox, nameWidth), age(e.GetCreatedAt().AsTime(), time.Now()), commandLine(e.GetCommand(), width))
	}
	t.write(a.Out)
}

func commandLine(command []string, width int) string {
	return clip(termsafe.Line(strings.Join(command, " ")), width)
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
	cmd.Flags().Var(quantity.NewDurationFlag(&timeout, defaultWait), "timeout", "with --wait: give up after this long")
	return cmd
}

func (a *app) cancel(ctx context.Context, execID string, wait bool, timeout time.Duration) error {
	e, err := a.findExec(ctx, execID)
	if err == nil {
		execID = e.GetExecId()
		err = a.conn().CancelExec(ctx, execID)
	}
	if err != nil {
		return a.notAnExec(ctx, execID, err)
	}
	a.hint(given(fmt.Sprintf("exec/%s ends later: ", execID), a.frozenWith(ctx, execID), ""))
	if !wait {
		fmt.Fprintf(a.Out, "exec/%s cancelling\n", execID)
		return nil
	}
	ctx, done := context.WithTimeout(ctx, timeout)
	defer done()
	e, err = a.conn().WaitExec(ctx, execID)
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
		return fmt.Errorf("%w; \"agbox execs --all\" lists them", err)
	}
	return fmt.Errorf("%s is a sandbox, not an exec; \"agbox execs %s --all\" lists its execs", ref, nameOrID(sb))
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
		if !client.IsUnanswered(err) || wait.For(ctx, retryEvery) != nil {
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
