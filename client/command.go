package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	// startPatience is how long a request to start or cancel a command is repeated while no daemon answers. The ID of the exec makes that safe.
	startPatience = 30 * time.Second
	// cancelPatience is how long the end of a cancelled command is waited for. It is longer than the daemon's grace period.
	cancelPatience = 60 * time.Second
)

// Cmd is a command in a sandbox, used like one of os/exec. Set the fields before Start. It may be used once, by one goroutine.
//
// The command runs on while the daemon restarts; its input and output then continue where they were. When the context ends, the command
// is cancelled.
type Cmd struct {
	SandboxID string
	Args      []string          // program and arguments
	Env       map[string]string // in addition to that of the sandbox
	Dir       string            // empty: that of the sandbox
	User      string            // name, uid, name:group or uid:gid; empty: that of the sandbox
	// Timeout ends the command, also while the daemon is away; 0: that of the daemon's configuration.
	Timeout time.Duration
	// Stdin is copied to the standard input until either ends; nil: it is empty. After the end of the command, what was read and not taken is
	// lost, and a Read that blocks goes on in the background. A failed Read ends the standard input, and is the error of Wait if the command succeeds.
	Stdin io.Reader
	// Stdout and Stderr get all output, however much it is; nil: it is only logged. They may be the same writer, which one goroutine calls. A
	// failed Write cancels the command.
	Stdout, Stderr io.Writer

	// ExecID is the ID of the exec, once Start was called.
	ExecID string
	// Status is how the command ended, set by Wait.
	Status *agboxv1.ExecStatus

	c     *Client
	ctx   context.Context //nolint:containedctx // as of os/exec
	pipes []io.Closer     // closed at the end of the command
	read  []io.Closer     // the caller's ends of pipes
	done  chan struct{}   // closed once Status and err are set; nil before Start
	err   error
}

// ExitError is a command that did not succeed: a non-zero exit code, a cancel, a timeout, or the loss of its process.
type ExitError struct {
	Status *agboxv1.ExecStatus
	// Stderr is the end of the standard error of Output, if Stderr was not set: at most 4 KiB.
	Stderr []byte
}

// ExitCode is the exit code of the command; 128 + N after signal N; -1 if it has none.
func (e *ExitError) ExitCode() int {
	if code := int(e.Status.GetExitCode()); code != 0 {
		return code
	}
	return -1
}

// Error implements error.
func (e *ExitError) Error() string {
	switch {
	case e.Status.GetState() == agboxv1.ExecState_EXEC_STATE_CANCELLED:
		return "exec " + e.Status.GetExecId() + " was cancelled"
	case e.Status.GetError() != "":
		return e.Status.GetError()
	}
	return fmt.Sprintf("exit code %d", e.Status.GetExitCode())
}

// Command prepares a command in a READY sandbox.
func (c *Client) Command(ctx context.Context, sandboxID string, args ...string) *Cmd {
	return &Cmd{SandboxID: sandboxID, Args: args, c: c, ctx: ctx}
}

// Run starts the command and waits for its end.
func (m *Cmd) Run() error {
	if err := m.Start(); err != nil {
		return err
	}
	return m.Wait()
}

// Start starts the command. Wait must follow. Errors: those of CreateExec, and of the context.
func (m *Cmd) Start() error {
	if m.done != nil {
		return errors.New("the command was already started")
	}
	m.ExecID, m.done = uuid.NewString(), make(chan struct{})
	if err := m.create(); err != nil {
		m.end(nil, err)
		return err
	}
	go m.attach()
	return nil
}

// create requests the exec, and again while no daemon answers: a repeated request is refused if the first one was recorded.
func (m *Cmd) create() error {
	req := &agboxv1.CreateExecRequest{
		SandboxId: m.SandboxID, Command: m.Args, Cwd: m.Dir, EnvOverrides: maps.Clone(m.Env), User: m.User, ExecId: m.ExecID, LiveOutput: m.reads(),
	}
	if m.Timeout > 0 {
		req.Timeout = durationpb.New(m.Timeout)
	}
	if m.Stdin != nil {
		req.Stdin = &agboxv1.StdinSpec{WhenGone: "eof"}
	}
	deadline := time.Now().Add(startPatience)
	var pause retry
	for first := true; ; first = false {
		_, err := m.c.CreateExec(m.ctx, req)
		if !first && Reason(err) == "EXEC_ID_ALREADY_EXISTS" {
			return nil
		}
		if err == nil || !IsUnanswered(err) && m.ctx.Err() == nil {
			return err
		}
		if m.ctx.Err() != nil || time.Now().After(deadline) || pause.wait(m.ctx) != nil {
			m.cancel() // the answer may be lost
			return errors.Join(context.Cause(m.ctx), err)
		}
	}
}

func (m *Cmd) reads() bool { return m.Stdout != nil || m.Stderr != nil }

// cancel requests the end of the command, and again while no daemon answers.
func (m *Cmd) cancel() {
	ctx, stop := context.WithTimeout(context.WithoutCancel(m.ctx), startPatience)
	defer stop()
	var pause retry
	for IsUnanswered(m.c.CancelExec(ctx, m.ExecID)) && pause.wait(ctx) == nil {
	}
}

// attach connects the command until its end.
func (m *Cmd) attach() {
	ctx, giveUp := context.WithCancel(context.WithoutCancel(m.ctx))
	defer giveUp()
	var cancelling sync.WaitGroup
	cancel := sync.OnceFunc(func() {
		m.cancel()
		time.AfterFunc(cancelPatience, giveUp)
	})
	cancelling.Add(1)
	stop := context.AfterFunc(m.ctx, func() {
		defer cancelling.Done()
		cancel()
	})
	var lost int64
	var in *input
	var stdin io.Reader
	if m.Stdin != nil {
		in = &input{r: m.Stdin}
		stdin = in
	}
	status, err := m.c.Attach(ctx, m.ExecID, AttachOptions{
		Stdin: stdin, Stdout: m.Stdout, Stderr: m.Stderr, OnGap: func(_ bool, _, count int64) { lost += count },
	})
	if status == nil && ctx.Err() == nil { // such as a failed write
		cancel()
		status, _ = m.c.WaitExec(ctx, m.ExecID)
	}
	if !stop() {
		cancelling.Wait()
	}
	switch {
	case m.ctx.Err() != nil:
		err = context.Cause(m.ctx)
	case err == nil && status.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED:
		err = &ExitError{Status: status}
	case err == nil && in.failure() != nil:
		err = fmt.Errorf("read the standard input of exec %s: %w", m.ExecID, in.failure())
	}
	if lost > 0 && m.reads() {
		err = errors.Join(err, fmt.Errorf("%d bytes of output of exec %s were lost", lost, m.ExecID))
	}
	m.end(status, err)
}

// input remembers why its reader failed.
type input struct {
	r   io.Reader
	mu  sync.Mutex
	err error
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.err = err
	}
	return n, err
}

// failure returns why it failed; nil: it did not, or in is nil.
func (in *input) failure() error {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

// end publishes the outcome.
func (m *Cmd) end(status *agboxv1.ExecStatus, err error) {
	m.Status, m.err = status, err
	for _, p := range m.pipes {
		_ = p.Close() // as documented, always nil
	}
	close(m.done)
}

// Wait waits for the end of the command, and of its output. Errors: *ExitError; the cause of the context, whose end cancelled the command; a
// failed write of the output; output that was lost because the daemon was killed while it passed on more than a log holds.
func (m *Cmd) Wait() error {
	if m.done == nil {
		return errors.New("the command was not started")
	}
	select {
	case <-m.done:
	case <-m.ctx.Done():
		for _, r := range m.read { // without a reader the command would never end
			_ = r.Close() // as documented, always nil
		}
		<-m.done
	}
	return m.err
}

// Output runs the command and returns its standard output.
func (m *Cmd) Output() ([]byte, error) {
	if m.Stdout != nil {
		return nil, errors.New("output: Stdout is set")
	}
	var out bytes.Buffer
	m.Stdout = &out
	var last *tail
	if m.Stderr == nil {
		last = &tail{}
		m.Stderr = last
	}
	err := m.Run()
	if exit, ok := errors.AsType[*ExitError](err); ok && last != nil {
		exit.Stderr = last.last
	}
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error, in the order in which they arrived.
func (m *Cmd) CombinedOutput() ([]byte, error) {
	if m.Stdout != nil || m.Stderr != nil {
		return nil, errors.New("combined output: Stdout or Stderr is set")
	}
	var out bytes.Buffer
	m.Stdout, m.Stderr = &out, &out
	err := m.Run()
	return out.Bytes(), err
}

// StdinPipe returns a writer to the standard input, which the caller closes. Writes fail after the end of the command.
func (m *Cmd) StdinPipe() (io.WriteCloser, error) {
	if m.Stdin != nil || m.done != nil {
		return nil, errors.New("pipe: Stdin is set, or the command was started")
	}
	r, w := io.Pipe()
	m.Stdin = r
	m.pipes = append(m.pipes, r)
	return w, nil
}

// StdoutPipe returns a reader of the standard output, which ends with the command. The command is slowed down to its reader, so read it to the
// end before Wait, which closes it once the context has ended.
func (m *Cmd) StdoutPipe() (io.ReadCloser, error) { return m.pipe(&m.Stdout) }

// StderrPipe is StdoutPipe for the standard error.
func (m *Cmd) StderrPipe() (io.ReadCloser, error) { return m.pipe(&m.Stderr) }

func (m *Cmd) pipe(to *io.Writer) (io.ReadCloser, error) {
	if *to != nil || m.done != nil {
		return nil, errors.New("pipe: the output is set, or the command was started")
	}
	r, w := io.Pipe()
	*to = w
	m.pipes, m.read = append(m.pipes, w), append(m.read, r)
	return r, nil
}
