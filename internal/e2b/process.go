package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/e2b/process"
	"github.com/agbox/agbox/client"
)

// A process of a client is an exec whose ID has the pid, so a pid is valid as long as the exec is on record. Pids are above those that a kernel
// gives out: inside the sandbox they name no process.
const (
	pidMark  = "-p"
	firstPid = 1 << 22
	lastPid  = 1<<31 - 1
)

func execID(sandboxID string, pid uint32) string {
	return sandboxID + pidMark + strconv.FormatUint(uint64(pid), 10)
}

// pidOf returns the pid of an exec of the sandbox; 0: a client of another kind created it.
func pidOf(sandboxID, id string) uint32 {
	text, _ := strings.CutPrefix(id, sandboxID+pidMark)
	pid, err := strconv.ParseUint(text, 10, 31)
	if err != nil || execID(sandboxID, uint32(pid)) != id {
		return 0
	}
	return uint32(pid)
}

func (g *Gateway) processRoutes() {
	streaming(g, "/process.Process/Start", g.startProcess)
	streaming(g, "/process.Process/Connect", g.connectProcess)
	unary(g, "/process.Process/List", g.listProcesses)
	unary(g, "/process.Process/SendInput", func(ctx context.Context, t target, req *process.SendInputRequest) (*process.SendInputResponse, error) {
		return &process.SendInputResponse{}, g.input(ctx, t, req.GetProcess(), inputOf(req.GetInput()), false)
	})
	unary(g, "/process.Process/CloseStdin", func(ctx context.Context, t target, req *process.CloseStdinRequest) (*process.CloseStdinResponse, error) {
		return &process.CloseStdinResponse{}, g.input(ctx, t, req.GetProcess(), nil, true)
	})
	unary(g, "/process.Process/SendSignal", func(ctx context.Context, t target, req *process.SendSignalRequest) (*process.SendSignalResponse, error) {
		return &process.SendSignalResponse{}, g.signal(ctx, t, req)
	})
	unary(g, "/process.Process/Update", func(ctx context.Context, t target, req *process.UpdateRequest) (*process.UpdateResponse, error) {
		size := req.GetPty().GetSize()
		if size == nil {
			return &process.UpdateResponse{}, nil
		}
		return &process.UpdateResponse{}, g.control(ctx, t, req.GetProcess(), &agboxv1.AttachExecRequest{
			Request: &agboxv1.AttachExecRequest_Resize{Resize: &agboxv1.TerminalSize{Columns: size.GetCols(), Rows: size.GetRows()}},
		})
	})
	const streamInput = "/process.Process/StreamInput"
	g.envd.Handle(streamInput, connect.NewClientStreamHandler(streamInput, g.streamInput, connect.WithReadMaxBytes(maxMessage)))
}

func badArgument(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

func (g *Gateway) startProcess(ctx context.Context, t target, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	msg := req.Msg
	if msg.GetTag() != "" {
		return connect.NewError(connect.CodeUnimplemented, errors.New("tag is not supported by agbox"))
	}
	create, err := g.command(ctx, t, msg)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok { // Connect-Timeout-Ms
		create.Timeout = durationpb.New(max(time.Until(deadline), time.Millisecond))
	}
	pid, err := g.createExec(ctx, create)
	if err != nil {
		return err
	}
	return g.output(ctx, t.id, pid, create.GetTerminal() != nil, req.Header(), func(e *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: e})
	})
}

// command checks a command and returns the request for its exec. Errors: invalid_argument for a missing directory, unauthenticated for an unknown
// user.
func (g *Gateway) command(ctx context.Context, t target, msg *process.StartRequest) (*agboxv1.CreateExecRequest, error) {
	config := msg.GetProcess()
	if config.GetCmd() == "" {
		return nil, badArgument("process.cmd is required")
	}
	create := &agboxv1.CreateExecRequest{
		SandboxId: t.id, Command: append([]string{config.GetCmd()}, config.GetArgs()...), EnvOverrides: config.GetEnvs(), User: t.user, LiveOutput: true,
	}
	if msg.Stdin == nil || msg.GetStdin() {
		create.Stdin = &agboxv1.StdinSpec{WhenGone: "keep"}
	}
	if size := msg.GetPty().GetSize(); msg.GetPty() != nil {
		create.Stdin = &agboxv1.StdinSpec{WhenGone: "keep"}
		create.Terminal = &agboxv1.TerminalSpec{Columns: size.GetCols(), Rows: size.GetRows()}
	}
	dir := config.GetCwd()
	if dir == "" && t.user != "" {
		dir = "." // the home of another user than the sandbox's
	}
	if dir != "" {
		entry, err := g.api.StatFile(ctx, &agboxv1.StatRequest{SandboxId: t.id, Path: dir, User: t.user, Follow: true})
		switch {
		case client.Reason(err) == client.ReasonFileNotFound, err == nil && entry.GetType() != agboxv1.FileType_FILE_TYPE_DIRECTORY:
			return nil, badArgument("cwd %q is not a directory", dir)
		case err != nil:
			return nil, err
		}
		create.Cwd = path.Clean(entry.GetPath())
	}
	if config.GetCmd() == bash && !g.bashes.has(t.id) {
		_, err := g.api.StatFile(ctx, &agboxv1.StatRequest{SandboxId: t.id, Path: bash, User: t.user, Follow: true})
		switch {
		case client.Reason(err) == client.ReasonFileNotFound:
			create.Command[0] = "/bin/sh"
		case err != nil:
			return nil, err
		default:
			g.bashes.add(t.id)
		}
	}
	return create, nil
}

const (
	// bash is the program with which the SDK runs commands.
	bash = "/bin/bash"
	// mostSeen bounds a seen.
	mostSeen = 10_000
)

// seen is a set of sandbox IDs, of at most mostSeen. It forgets all of them rather than grow.
type seen struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *seen) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

func (s *seen) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil || len(s.ids) >= mostSeen {
		s.ids = map[string]struct{}{}
	}
	s.ids[id] = struct{}{}
}

// createExec creates the exec with a pid of its own.
func (g *Gateway) createExec(ctx context.Context, create *agboxv1.CreateExecRequest) (pid uint32, err error) {
	for range 10 {
		pid = firstPid + rand.Uint32N(lastPid-firstPid)
		create.ExecId = execID(create.GetSandboxId(), pid)
		if _, err = g.api.CreateExec(ctx, create); !client.IsAlreadyExists(err) {
			return pid, err
		}
	}
	return 0, err
}

func (g *Gateway) connectProcess(ctx context.Context, t target, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	status, err := g.find(ctx, t, req.Msg.GetProcess())
	if err != nil {
		return err
	}
	return g.output(ctx, t.id, pidOf(t.id, status.GetExecId()), status.GetTerminal(), req.Header(), func(e *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: e})
	})
}

// find returns the exec of a process, also of one that has ended. Errors: not_found.
func (g *Gateway) find(ctx context.Context, t target, s *process.ProcessSelector) (*agboxv1.ExecStatus, error) {
	if _, byPid := s.GetSelector().(*process.ProcessSelector_Pid); !byPid {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("a process is named by its pid"))
	}
	status, err := g.api.GetExec(ctx, execID(t.id, s.GetPid()))
	if client.IsNotFound(err) || err == nil && (pidOf(t.id, status.GetExecId()) == 0 || status.GetSandboxId() != t.id) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process %d was not found", s.GetPid()))
	}
	return status, err
}

// output sends the events of a process from its start to its end. If the client leaves, the process goes on. Errors: unavailable if the sandbox
// died, so that there is no end; deadline_exceeded.
func (g *Gateway) output(ctx context.Context, sandboxID string, pid uint32, terminal bool, header map[string][]string, send func(*process.ProcessEvent) error) error {
	var mu sync.Mutex
	locked := func(e *process.ProcessEvent) error {
		mu.Lock()
		defer mu.Unlock()
		return send(e)
	}
	if err := locked(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}); err != nil {
		return err
	}
	stop := keepAlive(header, func() {
		_ = locked(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}})
	})
	defer stop()
	data := func(stderr bool) io.Writer {
		return writerFunc(func(p []byte) error {
			d := &process.ProcessEvent_DataEvent{}
			switch {
			case terminal:
				d.Output = &process.ProcessEvent_DataEvent_Pty{Pty: p}
			case stderr:
				d.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: p}
			default:
				d.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: p}
			}
			return locked(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}})
		})
	}
	end, err := g.api.Attach(ctx, execID(sandboxID, pid), client.AttachOptions{Stdout: data(false), Stderr: data(true)})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case end.GetErrorCode() == "EXEC_TIMEOUT":
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New(end.GetError()))
	case g.lost(ctx, sandboxID, end):
		return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox ended before the process did"))
	}
	return locked(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: endOf(end)}})
}

// lost reports whether the process ended with its sandbox.
func (g *Gateway) lost(ctx context.Context, sandboxID string, end *agboxv1.ExecStatus) bool {
	if end.GetErrorCode() == "EXEC_LOST" {
		return true
	}
	if end.GetState() != agboxv1.ExecState_EXEC_STATE_CANCELLED {
		return false
	}
	sb, err := g.api.GetSandbox(ctx, sandboxID)
	return err != nil || stateOf(sb) != running
}

func endOf(s *agboxv1.ExecStatus) *process.ProcessEvent_EndEvent {
	code := s.GetExitCode()
	if code == 0 && s.GetState() != agboxv1.ExecState_EXEC_STATE_FINISHED {
		code = -1
	}
	end := &process.ProcessEvent_EndEvent{ExitCode: code, Exited: true, Status: fmt.Sprintf("exit status %d", code)}
	if code != 0 {
		text := end.GetStatus()
		if s.GetErrorCode() != "EXEC_RUN_FAILED" && s.GetError() != "" {
			text = s.GetError()
		}
		end.Error = &text
	}
	return end
}

type writerFunc func([]byte) error

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) {
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (g *Gateway) listProcesses(ctx context.Context, t target, _ *process.ListRequest) (*process.ListResponse, error) {
	all, err := g.api.ListActiveExecs(ctx, t.id)
	if err != nil {
		return nil, err
	}
	resp := &process.ListResponse{}
	for _, e := range all {
		pid := pidOf(t.id, e.GetExecId())
		if pid == 0 || len(e.GetCommand()) == 0 {
			continue
		}
		config := &process.ProcessConfig{Cmd: e.GetCommand()[0], Args: e.GetCommand()[1:], Envs: e.GetEnvOverrides()}
		if dir := path.Clean(e.GetCwd()); e.GetCwd() != "" {
			config.Cwd = &dir
		}
		resp.Processes = append(resp.Processes, &process.ProcessInfo{Config: config, Pid: pid})
	}
	return resp, nil
}

func inputOf(in *process.ProcessInput) []byte { return slices.Concat(in.GetStdin(), in.GetPty()) }

// attached opens a stream to a running process that gets no output. Errors: not_found if it has ended.
func (g *Gateway) attached(ctx context.Context, t target, s *process.ProcessSelector, stdin bool) (call agboxv1.StreamService_AttachExecClient, first *agboxv1.AttachExecAttached, err error) {
	status, err := g.running(ctx, t, s)
	if err != nil {
		return nil, nil, err
	}
	if call, err = g.streams.AttachExec(ctx); err != nil {
		return nil, nil, err
	}
	start := &agboxv1.AttachExecStart{ExecId: status.GetExecId(), NoOutput: true, Stdin: stdin, TakeOver: stdin}
	_ = call.Send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Start{Start: start}}) // Recv has the error
	resp, err := call.Recv()
	return call, resp.GetAttached(), err
}

func (g *Gateway) signal(ctx context.Context, t target, req *process.SendSignalRequest) error {
	if req.GetSignal() != process.Signal_SIGNAL_SIGKILL && req.GetSignal() != process.Signal_SIGNAL_SIGTERM {
		return badArgument("signal %d is not supported; send SIGKILL or SIGTERM", req.GetSignal())
	}
	return g.control(ctx, t, req.GetProcess(), &agboxv1.AttachExecRequest{
		Request: &agboxv1.AttachExecRequest_Signal{Signal: uint32(req.GetSignal())}, //nolint:gosec // checked above
	})
}

// running returns the exec of a process that has not ended. Errors: not_found.
func (g *Gateway) running(ctx context.Context, t target, s *process.ProcessSelector) (*agboxv1.ExecStatus, error) {
	status, err := g.find(ctx, t, s)
	if err == nil && status.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
		err = ended(s)
	}
	return status, err
}

func ended(s *process.ProcessSelector) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("process %d has ended", s.GetPid()))
}

// control sends one request to a running process.
func (g *Gateway) control(ctx context.Context, t target, s *process.ProcessSelector, req *agboxv1.AttachExecRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, _, err := g.attached(ctx, t, s, false)
	if err != nil {
		return err
	}
	return errors.Join(call.Send(req), leave(call))
}

// leave ends a stream once the daemon has handled all requests.
func leave(call agboxv1.StreamService_AttachExecClient) error {
	if err := call.Send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Detach{Detach: true}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		resp, err := call.Recv()
		if errors.Is(err, io.EOF) || resp.GetEnd() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// input writes to the standard input of a process and returns once the process's pipe or terminal has taken it. Concurrent calls for a process
// are carried out one after the other.
func (g *Gateway) input(ctx context.Context, t target, s *process.ProcessSelector, data []byte, closes bool) error {
	release, err := g.writing.take(ctx, execID(t.id, s.GetPid()))
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, first, err := g.attached(ctx, t, s, true)
	if err != nil {
		return err
	}
	if first.GetStdinClosed() {
		if closes && len(data) == 0 {
			return nil
		}
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the standard input of process %d is closed", s.GetPid()))
	}
	at := first.GetStdinOffset()
	for sent := false; len(data) > 0 || closes && !sent; sent = true {
		piece := data[:min(int64(len(data)), first.GetStdinWindow(), agboxv1.PieceBytes)]
		data = data[len(piece):]
		chunk := &agboxv1.StdinChunk{Offset: at, Data: piece, Close: closes && len(data) == 0}
		_ = call.Send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Stdin{Stdin: chunk}}) // Recv has the error
		if at += int64(len(piece)); chunk.GetClose() && len(piece) == 0 {
			break
		}
		if over, err := acked(call, at); over || err != nil {
			return err
		}
	}
	return leave(call)
}

// acked waits until the process has taken all input before an offset, or has ended (over): the daemon may report the end first.
func acked(call agboxv1.StreamService_AttachExecClient, offset int64) (over bool, err error) {
	for {
		resp, err := call.Recv()
		ack := resp.GetStdinAck()
		switch {
		case err != nil:
			return false, err
		case resp.GetEnd() != nil:
			return true, nil
		case ack.GetOffset() >= offset:
			return false, nil
		case ack.GetClosed():
			return false, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process takes no more input"))
		case ack.GetTakenOver():
			return false, connect.NewError(connect.CodeAborted, errors.New("another client writes the input of the process"))
		}
	}
}

func (g *Gateway) streamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var selector *process.ProcessSelector
	for stream.Receive() {
		msg := stream.Msg()
		if start := msg.GetStart(); start != nil {
			selector = start.GetProcess()
		}
		if data := msg.GetData(); data != nil {
			if selector == nil {
				return nil, badArgument("the first message names the process")
			}
			if err := g.input(ctx, targetOf(ctx), selector, inputOf(data.GetInput()), false); err != nil {
				return nil, connectError(err)
			}
		}
	}
	return connect.NewResponse(&process.StreamInputResponse{}), stream.Err()
}
