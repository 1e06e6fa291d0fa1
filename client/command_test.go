package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/testing/conformance"
	"github.com/agbox/agbox/internal/testing/conformance/fakedaemon"
)

// commands starts a daemon with a READY sandbox.
func commands(t *testing.T) (*fakedaemon.Daemon, *client.Client, string) {
	t.Helper()
	d := fakedaemon.Start(t, conformance.Settings{})
	c, err := client.DialWith(d.Socket(), client.Options{Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	sb, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: fakedaemon.Image}})
	if err == nil {
		sb, err = c.WaitSandbox(t.Context(), sb.GetSandboxId(), client.Ready)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, c, sb.GetSandboxId()
}

func TestACommandContinuesOverARestartOfTheDaemon(t *testing.T) {
	d, c, id := commands(t)
	cmd := c.Command(t.Context(), id, "cat")
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for _, line := range []string{"before\n", "after\n"} {
		if _, err := io.WriteString(in, line); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); got != line || err != nil {
			t.Fatalf("%q, %v instead of %q", got, err, line)
		}
		d.Restart(t)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if len(rest) > 0 || err != nil || cmd.Wait() != nil {
		t.Errorf("%q, %v, %v", rest, err, cmd.Wait())
	}
}

func TestACommandEndsWithItsContextAndWithAFailedWrite(t *testing.T) {
	_, c, id := commands(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no longer needed")
	cmd := c.Command(ctx, id, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if err := cmd.Wait(); !errors.Is(err, cause) || cmd.Status.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("%v, %v", err, cmd.Status)
	}
	r, w := io.Pipe()
	_ = r.CloseWithError(cause) // as documented, always nil
	cmd = c.Command(t.Context(), id, "sh", "-c", "echo x; sleep 1000")
	cmd.Stdout = w
	if err := cmd.Run(); !errors.Is(err, cause) || cmd.Status.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("%v, %v", err, cmd.Status)
	}
	cmd = c.Command(t.Context(), "none", "true")
	if err := cmd.Run(); client.Reason(err) != "SANDBOX_NOT_FOUND" {
		t.Errorf("%v", err)
	}
	if err := cmd.Start(); err == nil || !strings.Contains(err.Error(), "already started") {
		t.Errorf("%v", err)
	}
	if _, err := (c.Command(t.Context(), id, "false")).Output(); func() int {
		exit, _ := errors.AsType[*client.ExitError](err)
		return exit.ExitCode()
	}() != 1 {
		t.Errorf("%v", err)
	}
}

// lateExecs does not answer the first create in time, and has recorded it.
type lateExecs struct {
	agboxv1.UnimplementedSandboxServiceServer
	creates atomic.Int32
}

// CreateExec implements agbox.v1.SandboxService.
func (l *lateExecs) CreateExec(context.Context, *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	if l.creates.Add(1) == 1 {
		return nil, status.Error(codes.DeadlineExceeded, "late")
	}
	st, err := status.New(codes.AlreadyExists, "it exists").WithDetails(&errdetails.ErrorInfo{Reason: "EXEC_ID_ALREADY_EXISTS"})
	if err != nil {
		return nil, err
	}
	return nil, st.Err()
}

func TestACommandIsNotForgottenWhenItsCreateIsNotAnsweredInTime(t *testing.T) {
	late := &lateExecs{}
	c, serve := dial(t, func(s *grpc.Server) { agboxv1.RegisterSandboxServiceServer(s, late) })
	serve()
	cmd := c.Command(t.Context(), "s", "true")
	if err := cmd.Start(); err != nil || late.creates.Load() != 2 {
		t.Errorf("%v after %d requests", err, late.creates.Load())
	}
	_ = cmd.Wait() // this daemon has no streams
}

func TestAFailedReadOfStandardInputIsAnError(t *testing.T) {
	_, c, id := commands(t)
	cause := errors.New("the disk is broken")
	cmd := c.Command(t.Context(), id, "cat")
	cmd.Stdin = io.MultiReader(strings.NewReader("a part"), iotest.ErrReader(cause))
	out, err := cmd.Output()
	if string(out) != "a part" || !errors.Is(err, cause) || cmd.Status.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED {
		t.Errorf("%q, %v, %v", out, err, cmd.Status)
	}
}

func TestAPipeThatNobodyReadsHoldsUpNoCancelledCommand(t *testing.T) {
	_, c, id := commands(t)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := c.Command(ctx, id, "yes")
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); !errors.Is(err, context.Canceled) || cmd.Status.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		t.Errorf("%v, %v", err, cmd.Status)
	}
}
