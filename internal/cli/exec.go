package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/agbox/agbox/internal/wait"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

const (
	// acceptPatience is how long a request is retried while the daemon does not answer. Its fixed ID makes that safe.
	acceptPatience = 30 * time.Second
	// cancelPatience is how long the command waits for the end of a cancelled exec; it is longer than the grace period.
	cancelPatience = 60 * time.Second
	retryEvery     = 200 * time.Millisecond
	// answerPatience is how long the command waits for the answer of a sent request after a signal, to know whether there is an exec to
	// cancel.
	answerPatience = 2 * time.Second
)

type execOptions struct {
	env     []string
	dir     string
	user    string
	timeout time.Duration
	detach  bool
	raw     bool
	stdin   bool
	tty     bool
	keys    string
	// takeOver takes standard input from another program. fromNow skips the output until now.
	takeOver, fromNow bool
}

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use: "exec NAME [--] COMMAND [ARG...]", SuggestFor: []string{"shell", "ssh"}, Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox and stream its output. Without -i its standard input is empty and this program reads none; with -i standard
input is passed on, and with -it the command has a terminal. Flags of agbox precede the command.

The exit code is the command's, 124 after --timeout, or 125 if it could not run or if output was lost. ^C cancels the command, a second ^C
exits at once; with -it it is passed on. The command survives this program and the daemon: when this program is gone, its standard input ends
after a minute, and with -it its terminal hangs up after ten minutes. With -it, the keys ^P ^Q leave the command running
("agbox attach" returns to it).

On a terminal, escape sequences other than colours are shown as text, unless -t or --raw is given. A file or a pipe gets every byte unchanged.`,
		Example:           "  agbox exec web -- ls -l /workspace\n  agbox exec -it web -- bash\n  agbox exec -i db -- psql < dump.sql\n  agbox exec web --user root --timeout 10m make -C /workspace\n  agbox exec web -e DEBUG=1 -w /tmp -- sh -c 'echo $DEBUG'",
		ValidArgsFunction: a.sandboxKind().first,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, command, err := nameAndCommand(cmd, args)
			if err != nil {
				return err
			}
			if o.detach && (o.stdin || o.tty) {
				return usagef(cmd, "--detach excludes -i and -t")
			}
			envs, err := parseEnv(cmd, o.env)
			if err != nil {
				return err
			}
			req := &agboxv1.CreateExecRequest{Command: command, Cwd: o.dir, EnvOverrides: envs, User: o.user, ExecId: uuid.NewString()}
			if cmd.Flags().Changed("timeout") {
				req.Timeout = durationpb.New(o.timeout)
			}
			if err := checkText(cmd, req); err != nil {
				return err
			}
			if err := a.connectInput(cmd, req, o); err != nil {
				return err
			}
			return a.exec(cmd.Context(), name, req, o)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringArrayVarP(&o.env, "env", "e", nil, "KEY=VALUE for the command; repeatable")
	cmd.Flags().StringVarP(&o.dir, "workdir", "w", "", "directory to run in (default the sandbox's)")
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "run as this user: name, uid, name:group or uid:gid (default the sandbox's)")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.timeout, 0), "timeout", "end the command after this long, also while the daemon is away; exit code 124")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "print the exec's ID and return; see \"agbox logs\"")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "write all escape sequences to the terminal unchanged")
	cmd.Flags().BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input to the command")
	cmd.Flags().BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	cmd.Flags().StringVar(&o.keys, "detach-keys", defaultDetachKeys, "keys that leave a command with a terminal running")
	return cmd
}

// nameAndCommand returns the sandbox and the command. Flags of agbox precede the first word of the command: further ones, and everything
// behind "--", are the command's. The command line was parsed up to the name.
func nameAndCommand(cmd *cobra.Command, args []string) (name string, command []string, err error) {
	usage := usagef(cmd, "expected NAME -- COMMAND [ARG...]")
	if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
		return "", nil, usage
	}
	if cmd.ArgsLenAtDash() < 0 {
		if err := cmd.ParseFlags(args[1:]); err != nil {
			return "", nil, cmd.FlagErrorFunc()(cmd, err)
		}
		command = cmd.Flags().Args()
	}
	if len(command) == 0 {
		return "", nil, usage
	}
	return args[0], command, nil
}

// checkText refuses text that protobuf strings can't contain.
func checkText(cmd *cobra.Command, req *agboxv1.CreateExecRequest) error {
	for i, arg := range req.GetCommand() {
		if !utf8.ValidString(arg) {
			return usagef(cmd, "argument %d of the command is not UTF-8 text; pass other bytes in a file", i)
		}
	}
	for key, value := range req.GetEnvOverrides() {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return usagef(cmd, "bad -e: %q is not UTF-8 text", key)
		}
	}
	if !utf8.ValidString(req.GetUser()) {
		return usagef(cmd, "bad -u: not UTF-8 text")
	}
	if !utf8.ValidString(req.GetCwd()) {
		return usagef(cmd, "bad -w: not UTF-8 text")
	}
	return nil
}

func (a *app) exec(ctx context.Context, ref string, req *agboxv1.CreateExecRequest, o execOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	if err != nil {
		return notRun(ctx, err)
	}
	req.SandboxId = sb.GetSandboxId()
	if err := a.createExec(ctx, req); err != nil {
		if ctx.Err() != nil || client.IsUnanswered(err) {
			a.requestCancel(req.GetExecId()) // the answer is lost, the exec may exist
		}
		return notRun(ctx, a.execRefused(ctx, sb, err))
	}
	if o.detach && ctx.Err() != nil {
		a.requestCancel(req.GetExecId())
		return notRun(ctx, ctx.Err())
	}
	if o.detach {
		fmt.Fprintln(a.Out, req.GetExecId())
		return nil
	}
	return a.attachExec(ctx, req.GetExecId(), o)
}

// notRun gives an error the exit code 125, unless a signal ended the command.
func notRun(ctx context.Context, err error) error {
	if isInterrupt(ctx) {
		return err
	}
	return &exitError{code: exitNotRun, err: err}
}

// createExec retries the request while the daemon does not answer, so that a restart does not lose the command. A sent request
// outlives ctx for answerPatience: otherwise the daemon could record it after a cancel that did not find it.
func (a *app) createExec(ctx context.Context, req *agboxv1.CreateExecRequest) error {
	calls, giveUp := outliving(ctx, answerPatience)
	defer giveUp()
	deadline := time.Now().Add(acceptPatience)
	for tries := 0; ; tries++ {
		_, err := a.conn().CreateExec(calls, req)
		if tries > 0 && client.Reason(err) == "EXEC_ID_ALREADY_EXISTS" {
			return nil // an earlier request was recorded
		}
		if !client.IsUnanswered(err) || time.Now().After(deadline) {
			return err
		}
		if err := wait.For(ctx, retryEvery); err != nil {
			return err
		}
	}
}

// outliving returns a context that ends later than ctx.
func outliving(ctx context.Context, grace time.Duration) (_ context.Context, cancel func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, end)
	})
	return longer, func() { stop(); end() }
}

// attachExec connects the command's output, and its input if that was asked for, to this program until the exec has ended, and returns its
// outcome. Without a terminal, a signal or a failed write of the output cancels the exec; attachExec still waits for its end.
func (a *app) attachExec(ctx context.Context, execID string, o execOptions) error {
	waitCtx, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	cancelled := make(chan struct{})
	cancel := sync.OnceFunc(func() {
		defer close(cancelled)
		if o.tty && o.stdin {
			giveUp() // as when a terminal is closed: the daemon hangs the command up later, unless a client attaches
			return
		}
		a.cancelAttached(execID, giveUp)
	})
	screens := screens{raw: o.raw || o.tty, mode: termsafe.Live}
	opts := client.AttachOptions{Stdout: &printer{w: screens.before(a.Out)}, Stderr: &printer{w: screens.before(a.Err)}, TakeOver: o.takeOver, FromNow: o.fromNow}
	var lost int64
	opts.OnGap = func(_ bool, _, count int64) { lost += count }
	detach, err := a.attachInput(&opts, o)
	if err != nil {
		return err
	}
	defer detach.restore()
	stop := context.AfterFunc(ctx, cancel)
	end := &execEnd{done: closedChannel}
	end.exec, end.err = a.conn().Attach(waitCtx, execID, opts)
	var printErr *printError
	if errors.As(end.err, &printErr) {
		cancel()
		end.exec, end.err = a.conn().WaitExec(waitCtx, execID)
	}
	showErr := screens.close()
	if !stop() {
		<-cancelled
	}
	detach.restore()
	switch {
	case errors.Is(end.err, client.ErrDetached):
		a.hint("\nleft exec " + execID + " running; \"agbox attach " + execID + "\" returns to it") // below the line where the command was
		return nil
	case printErr != nil && errors.Is(printErr, syscall.EPIPE):
		return &exitError{code: exitBrokenOut}
	case printErr != nil:
		return &exitError{code: exitNotRun, err: fmt.Errorf("exec %s was cancelled: %w", execID, printErr)}
	case showErr != nil:
		return &exitError{code: exitNotRun, err: showErr}
	}
	err = a.outcome(ctx, execID, end)
	if lost > 0 && !isInterrupt(ctx) {
		a.complain(fmt.Errorf("%d bytes of output of exec %s were lost", lost, execID))
		return &exitError{code: exitNotRun}
	}
	return err
}

// printer marks the errors of its writer.
type printer struct{ w io.Writer }

// printError is the failure of a write of output to this program's own stdout or stderr.
type printError struct{ err error }

func (e *printError) Error() string { return e.err.Error() }
func (e *printError) Unwrap() error { return e.err }

// Write implements io.Writer.
func (p *printer) Write(data []byte) (int, error) {
	n, err := p.w.Write(data)
	if err != nil {
		err = &printError{err}
	}
	return n, err
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// execEnd is the result of awaitExec. exec and err may be read once done is closed.
type execEnd struct {
	done chan struct{}
	exec *agboxv1.ExecStatus
	err  error
}

// outcome turns the end of an exec into an exit code.
func (a *app) outcome(ctx context.Context, execID string, end *execEnd) error {
	if signal, ok := errors.AsType[*Signalled](context.Cause(ctx)); ok {
		if end.err != nil {
			a.complain(notEnded(execID, a.frozenNow(execID)))
		}
		return &exitError{code: signal.ExitCode()}
	}
	if end.err != nil {
		return &exitError{code: exitNotRun, err: fmt.Errorf("wait for exec %s: %w", execID, end.err)}
	}
	return execResult(end.exec)
}

func execResult(e *agboxv1.ExecStatus) error {
	code := int(e.GetExitCode())
	switch e.GetState() {
	case agboxv1.ExecState_EXEC_STATE_FINISHED:
		return nil
	case agboxv1.ExecState_EXEC_STATE_CANCELLED:
		if code == 0 {
			code = 143
		}
		return &exitError{code: code, err: errors.New("the command was cancelled")}
	}
	failed := &exitError{code: max(code, exitFailed)}
	switch why := e.GetErrorCode(); {
	case why == "EXEC_START_FAILED", why == "EXEC_LOST":
		failed.code, failed.err = exitNotRun, fmt.Errorf("%s: %s", why, e.GetError())
	case why == "EXEC_TIMEOUT":
		failed.code, failed.err = exitTimeout, errors.New(e.GetError())
	case why == "EXEC_LOG_LIMIT":
		failed.err = fmt.Errorf("%s: %s", why, e.GetError())
	case e.GetOomKilled():
		failed.err = fmt.Errorf("the command was %s", e.GetError())
	case e.GetOomKills() > 0:
		failed.err = errors.New(e.GetError())
	}
	return failed
}
