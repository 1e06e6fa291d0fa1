package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

const (
	// writerTimeout bounds the record that a writer of standard input has gone.
	writerTimeout = 10 * time.Second
	// endPatience is how long an exec whose connection broke may take to end before the client has to attach again.
	endPatience = 5 * time.Second
)

// Channels opens streams to the processes that serve sandboxes: *hub.Hub.
type Channels interface {
	OpenExec(ctx context.Context, sandboxID, execID string) (net.Conn, error)
}

type attachStore interface {
	logStore
	AttachStdin(ctx context.Context, execID string) error
	DetachStdin(ctx context.Context, execID string, keep bool) error
}

// attaches serves AttachExec.
type attaches struct {
	*execLogs
	store    attachStore
	channels Channels
	status   func(e store.Exec) *agboxv1.ExecStatus
	writers  *Writers
}

type attachStream = grpc.BidiStreamingServer[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]

// AttachExec implements agbox.v1.StreamService.
//
// Output up to the limit of the logs is read from the logs, which are the truth; what lies beyond comes over the channel, while the client is
// there. Only standard input, terminals and output beyond the limit need the channel.
func (a *attaches) AttachExec(stream attachStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return invalid("start", "the first request must be start")
	}
	if err := required("exec_id", start.GetExecId()); err != nil {
		return err
	}
	for field, offset := range map[string]int64{"stdout_offset": start.GetStdoutOffset(), "stderr_offset": start.GetStderrOffset()} {
		if offset < 0 || offset == math.MaxInt64 {
			return invalid(field, field+" must not be negative")
		}
	}
	e, err := a.store.Exec(stream.Context(), start.GetExecId())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	c := &attachment{attaches: a, stream: stream, start: start, exec: e, cancel: cancel}
	defer c.close()
	return c.run(ctx)
}

// attachment is one call of AttachExec.
type attachment struct {
	*attaches
	stream attachStream
	start  *agboxv1.AttachExecStart
	exec   store.Exec
	cancel context.CancelCauseFunc

	sending sync.Mutex // of stream.Send
	input   *stdinLink // nil: the client sends nothing to the exec
	outputs [2]*attachedOutput
}

func (c *attachment) send(r *agboxv1.AttachExecResponse) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(r)
}

func (c *attachment) close() {
	c.cancel(nil)
	for _, o := range c.outputs {
		if o != nil {
			o.close()
		}
	}
	if c.input != nil {
		c.input.close()
	}
}

func (c *attachment) run(ctx context.Context) error {
	if !c.start.GetNoOutput() {
		for i, stream := range []agboxv1.OutputStream{agboxv1.OutputStream_OUTPUT_STREAM_STDOUT, agboxv1.OutputStream_OUTPUT_STREAM_STDERR} {
			o, err := c.output(stream)
			if err != nil {
				return err
			}
			c.outputs[i] = o
		}
	}
	if err := c.attach(ctx); err != nil {
		return err
	}
	c.goes(func() { c.receive(ctx) })
	err := c.followExec(ctx, c.exec, c.show)
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errDetached):
		return nil
	case err != nil && cause != nil && !errors.Is(cause, context.Canceled):
		return cause
	}
	return err
}

// errDetached ends the call of a client that leaves on purpose.
var errDetached = errors.New("the client has left")

// output returns a stream of output from where the client wants it.
func (c *attachment) output(stream agboxv1.OutputStream) (*attachedOutput, error) {
	offset := c.start.GetStdoutOffset()
	if stream == agboxv1.OutputStream_OUTPUT_STREAM_STDERR {
		offset = c.start.GetStderrOffset()
	}
	o := &attachedOutput{c: c, log: c.reader(c.exec, stream, offset), limit: unknownLimit}
	if !c.start.GetFromNow() {
		return o, nil
	}
	var err error
	o.log.offset, err = o.log.size()
	return o, err
}

// attach connects to the supervisor if the client sends something that needs it, and answers start.
func (c *attachment) attach(ctx context.Context) error {
	req, answer := c.exec.Request, &agboxv1.AttachExecAttached{StdinWindow: channel.StdinWindow, StdinClosed: true, Terminal: c.exec.Request.GetTerminal() != nil}
	if c.exec.End == nil && (req.GetStdin() != nil || req.GetTerminal() != nil) {
		link, err := c.connect(ctx)
		if errors.Is(err, errEnded) {
			err = nil
		}
		if err != nil {
			return err
		}
		if c.input = link; link != nil {
			link.mu.Lock()
			answer.StdinOffset, answer.StdinClosed = link.next, link.ended
			link.mu.Unlock()
		}
	}
	if out := c.outputs; out[0] != nil {
		answer.StdoutOffset, answer.StderrOffset = out[0].log.offset, out[1].log.offset
	}
	return c.send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_Attached{Attached: answer}})
}

// show sends the output that is there, and the end of an ended exec.
func (c *attachment) show(ctx context.Context, e store.Exec) (done bool, err error) {
	for i, o := range c.outputs {
		if o == nil {
			continue
		}
		var dropped int64
		if e.End != nil {
			dropped = e.End.GetStdoutDroppedBytes()
			if i == 1 {
				dropped = e.End.GetStderrDroppedBytes()
			}
		}
		if err := o.show(ctx, e, dropped); err != nil {
			return false, err
		}
	}
	if e.End == nil {
		return false, nil
	}
	return true, c.send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_End{End: c.status(e)}})
}

// receive handles the requests of the client until its stream ends.
func (c *attachment) receive(ctx context.Context) {
	input := c.input
	for {
		req, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return // the client only reads from here on
		}
		if err != nil {
			c.cancel(err)
			return
		}
		if input == nil {
			if req.GetDetach() {
				c.cancel(errDetached)
				return
			}
			if req.GetSignal() == 0 || c.exec.End != nil {
				continue // the exec has ended, or takes nothing else
			}
			if input, err = c.connect(ctx); errors.Is(err, errEnded) {
				continue
			} else if err != nil {
				c.cancel(err)
				return
			}
			defer input.close()
		}
		if err := input.obey(ctx, req); err != nil {
			c.cancel(err)
			return
		}
	}
}

// unknownLimit is the limit of a log before the first output.
const unknownLimit = -1

// attachedOutput sends one output stream of an exec.
type attachedOutput struct {
	c     *attachment
	log   *logReader
	limit int64 // of the log, in bytes; 0: none
	live  *liveLink
	at    int64 // once past the limit: offset of the next byte
}

func (o *attachedOutput) close() {
	o.log.close()
	if o.live != nil {
		o.live.close()
	}
}

// show sends what is there. dropped is the number of bytes that an ended exec printed beyond the limit of the log.
func (o *attachedOutput) show(ctx context.Context, e store.Exec, dropped int64) error {
	end, err := o.end(e, dropped)
	if err != nil {
		return err
	}
	if err := sendTo(ctx, o.log, end, o.send); err != nil {
		return err
	}
	if e.End == nil && o.limit > 0 && o.log.offset >= o.limit && o.live == nil && e.Request.GetLiveOutput() {
		return o.follow(ctx)
	}
	if e.End == nil {
		return nil
	}
	if o.live != nil {
		o.live.wait(ctx)
	}
	o.at = max(o.at, o.log.offset)
	return o.gap(end + dropped)
}

// end returns up to which offset the log has output.
func (o *attachedOutput) end(e store.Exec, dropped int64) (int64, error) {
	size, err := o.log.size()
	if err != nil || size == 0 {
		return 0, err
	}
	if e.End != nil {
		if dropped > 0 {
			size = o.log.file.OutputBytes(size)
		}
		return size, nil
	}
	if o.limit == unknownLimit {
		limit, ok, err := o.c.execLogs.outputs.LogLimit(e.SandboxID, e.ID)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, nil // its end is about to be recorded
		}
		o.limit = limit
	}
	if o.limit > 0 {
		size = min(size, o.limit)
	}
	return size, nil
}

func (o *attachedOutput) send(chunk *agboxv1.OutputChunk) error {
	return o.c.send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_Output{Output: chunk}})
}

// gap says that the bytes up to an offset are lost.
func (o *attachedOutput) gap(to int64) error {
	if to <= o.at {
		return nil
	}
	gap := &agboxv1.OutputGap{Stream: o.log.stream, Offset: o.at, Count: to - o.at}
	o.at = to
	return o.c.send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_Gap{Gap: gap}})
}

// follow starts to send the output beyond the limit as the supervisor reads it. The supervisor waits for the client.
func (o *attachedOutput) follow(ctx context.Context) error {
	conn, err := o.c.channels.OpenExec(ctx, o.c.exec.SandboxID, o.c.exec.ID)
	if err != nil {
		o.live = &liveLink{done: closed} // what is dropped shows as a gap at the end
		return ctx.Err()
	}
	o.at = max(o.log.offset, o.limit)
	o.live = &liveLink{conn: conn, done: make(chan struct{})}
	if err := channel.Write(conn, channel.Frame{Kind: channel.Attach, Live: true}); err != nil {
		conn.Close()
		o.live = &liveLink{done: closed}
		return nil
	}
	o.c.goes(func() {
		defer close(o.live.done)
		if err := o.relay(channel.NewReader(conn)); err != nil {
			o.c.cancel(err)
		}
	})
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// relay sends the frames of a live connection until it ends. A connection that breaks is no error: what it did not bring is a gap.
func (o *attachedOutput) relay(r *channel.Reader) error {
	want := uint32(channel.Stdout)
	if o.log.stream == agboxv1.OutputStream_OUTPUT_STREAM_STDERR {
		want = channel.Stderr
	}
	for {
		f, err := r.Read()
		if err != nil || f.Kind == channel.End {
			return nil
		}
		if f.Kind != channel.Output || f.Stream != want || f.Offset+int64(len(f.Data)) <= o.at {
			continue
		}
		if err := o.gap(f.Offset); err != nil {
			return err
		}
		for piece := range slices.Chunk(f.Data[o.at-f.Offset:], agboxv1.PieceBytes) {
			if err := o.send(&agboxv1.OutputChunk{Stream: o.log.stream, Offset: o.at, Data: piece}); err != nil {
				return err
			}
			o.at += int64(len(piece))
		}
	}
}

// liveLink is a connection that brings output beyond the limit.
type liveLink struct {
	conn net.Conn
	done chan struct{} // closed when no more comes
}

func (l *liveLink) close() {
	if l.conn != nil {
		l.conn.Close()
	}
	<-l.done
}

// wait waits for what the connection still brings of an ended exec: the supervisor has sent it.
func (l *liveLink) wait(ctx context.Context) {
	select {
	case <-l.done:
	case <-ctx.Done():
	}
}

// errEnded says that the supervisor of an exec is gone: its end is about to be recorded.
var errEnded = errors.New("the exec has ended")

// noChannel turns the error of a missing channel into a refusal.
func noChannel(e store.Exec, err error) error {
	if !errdefs.IsFailedPrecondition(err) {
		return err
	}
	return &store.Refusal{
		Reason: "CHANNEL_UNAVAILABLE", Class: errdefs.ErrFailedPrecondition, Metadata: map[string]string{"exec_id": e.ID, "sandbox_id": e.SandboxID},
		Message: fmt.Sprintf("exec %s can't be reached: %v; its logs can be read", e.ID, err),
	}
}

var _ Outputs = (*execjournal.Dir)(nil)
