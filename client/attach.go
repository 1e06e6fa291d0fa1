package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Size is that of a terminal, in characters.
type Size struct{ Columns, Rows uint32 }

// AttachOptions say what Attach connects to an exec.
type AttachOptions struct {
	// Stdout and Stderr get the output from its start; nil: it is not read. A failed write ends Attach with its error.
	Stdout, Stderr io.Writer
	// StdoutOffset and StderrOffset are where the output starts, in bytes.
	StdoutOffset, StderrOffset int64
	// FromNow skips the output that was printed before the call; the offsets are ignored.
	FromNow bool
	// Stdin is copied to the exec's standard input, which ends where Stdin does; nil: it is not touched. Attach may return while it still
	// reads, and what it then reads is lost.
	Stdin io.Reader
	// TakeOver takes standard input from another client; otherwise the error is FailedPrecondition, reason STDIN_IN_USE.
	TakeOver bool
	// Size is that of the caller's terminal, and Resize its changes.
	Size   Size
	Resize <-chan Size
	// Signals are sent to the command.
	Signals <-chan int
	// Detach ends Attach with ErrDetached when it is closed: the exec keeps its standard input open.
	Detach <-chan struct{}
	// OnGap is called for output that was dropped because it exceeded the limit of the logs; nil: it is ignored.
	OnGap func(stderr bool, offset, count int64)
	// OnStdin is called when the exec takes no more standard input; takenOver: another client writes it. It may be nil.
	OnStdin func(takenOver bool)
	// OnAway is called when the daemon has not answered a reconnect for a second.
	OnAway func()
}

// ErrDetached is the error of Attach after a detach.
var ErrDetached = errors.New("detached from the exec")

// Attach connects to an exec until it ends, and returns it. After a lost connection or a restart of the daemon it continues where it was: no
// byte of output is lost or repeated, nor one of standard input that the exec has taken. Output beyond the limit of the logs is only delivered
// for an exec that was created with live_output; OnGap reports dropped output. While the daemon does not answer Attach keeps trying, so
// give ctx a deadline.
func (c *Client) Attach(ctx context.Context, execID string, o AttachOptions) (*agboxv1.ExecStatus, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attaching{c: c, execID: execID, o: o, cancel: cancel, offsets: [2]int64{o.StdoutOffset, o.StderrOffset}, origin: -1}
	if o.Stdin != nil {
		a.input = newTyping(o.Stdin)
		defer a.input.finish()
	}
	var pause retry
	for {
		end, err := a.once(ctx, &pause)
		if a.detached() && IsUnavailable(err) {
			return nil, ErrDetached // the exec keeps its input for the grace of its policy
		}
		if end != nil || !IsUnavailable(err) {
			return end, a.why(ctx, err)
		}
		stop := pause.notice(o.OnAway)
		waitErr := pause.wait(ctx)
		stop()
		if waitErr != nil {
			return nil, a.why(ctx, err)
		}
		a.o.TakeOver = a.o.TakeOver || a.sent // the connection that was lost may still be registered
	}
}

// detached reports whether the caller has left.
func (a *attaching) detached() bool {
	select {
	case <-a.o.Detach:
		return true
	default:
		return false
	}
}

// why returns the error that ended an attachment.
func (a *attaching) why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// attaching is one call of Attach.
type attaching struct {
	c       *Client
	execID  string
	o       AttachOptions
	cancel  context.CancelCauseFunc
	offsets [2]int64
	input   *typing
	// origin is the offset of the first byte of input in the exec's standard input; -1 before the first connection.
	origin int64
	sent   bool // a daemon may have registered this client
}

type attachCall interface {
	Send(*agboxv1.AttachExecRequest) error
	Recv() (*agboxv1.AttachExecResponse, error)
	CloseSend() error
}

// once is one connection. It returns the exec once that has ended.
func (a *attaching) once(ctx context.Context, pause *retry) (*agboxv1.ExecStatus, error) {
	ctx, stop := context.WithCancel(ctx)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer stop()
	call, err := a.c.streams.AttachExec(ctx)
	if err != nil {
		return nil, a.c.fromStatus(err)
	}
	a.sent = true
	start := &agboxv1.AttachExecStart{
		ExecId: a.execID, StdoutOffset: a.offsets[0], StderrOffset: a.offsets[1], NoOutput: a.o.Stdout == nil && a.o.Stderr == nil,
		Stdin: a.input != nil && !a.input.isOver(), TakeOver: a.o.TakeOver, FromNow: a.o.FromNow,
	}
	if a.o.Size != (Size{}) {
		start.Size = &agboxv1.TerminalSize{Columns: a.o.Size.Columns, Rows: a.o.Size.Rows}
	}
	if err := call.Send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Start{Start: start}}); err != nil {
		return nil, a.sendError(call)
	}
	first, err := call.Recv()
	if err != nil {
		return nil, a.c.fromStatus(err)
	}
	pause.reset()
	attached := first.GetAttached()
	a.o.FromNow, a.offsets = false, [2]int64{attached.GetStdoutOffset(), attached.GetStderrOffset()}
	if attached.GetStdinClosed() && a.input != nil {
		a.stdinOver(false)
	}
	var sending sync.Mutex
	send := func(r *agboxv1.AttachExecRequest) error {
		sending.Lock()
		defer sending.Unlock()
		return call.Send(r)
	}
	if a.input != nil && !attached.GetStdinClosed() {
		if a.origin < 0 {
			a.origin = attached.GetStdinOffset() // behind what other clients have written
		}
		senders.Go(func() {
			a.input.send(ctx, attached.GetStdinOffset()-a.origin, func(chunk *agboxv1.StdinChunk) error {
				chunk.Offset += a.origin
				return send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Stdin{Stdin: chunk}})
			})
		})
	}
	senders.Go(func() { a.control(ctx, send) })
	for {
		r, err := call.Recv()
		if errors.Is(err, io.EOF) && a.detached() {
			return nil, ErrDetached
		}
		if err != nil {
			return nil, a.c.fromStatus(err)
		}
		if end := r.GetEnd(); end != nil {
			return end, nil
		}
		if err := a.take(r); err != nil {
			a.cancel(err)
			return nil, err
		}
	}
}

// sendError returns the reason for which a call refused a message.
func (a *attaching) sendError(call attachCall) error {
	_, err := call.Recv()
	return a.c.fromStatus(err)
}

// take handles one response.
func (a *attaching) take(r *agboxv1.AttachExecResponse) error {
	if ack := r.GetStdinAck(); ack != nil {
		if a.input != nil && !ack.GetTakenOver() {
			a.input.taken(ack.GetOffset() - a.origin)
		}
		if ack.GetClosed() || ack.GetTakenOver() {
			a.stdinOver(ack.GetTakenOver())
		}
	}
	if gap := r.GetGap(); gap != nil {
		stderr := gap.GetStream() == agboxv1.OutputStream_OUTPUT_STREAM_STDERR
		a.offsets[index(stderr)] = gap.GetOffset() + gap.GetCount()
		if a.o.OnGap != nil {
			a.o.OnGap(stderr, gap.GetOffset(), gap.GetCount())
		}
	}
	chunk := r.GetOutput()
	if chunk == nil {
		return nil
	}
	stderr := chunk.GetStream() == agboxv1.OutputStream_OUTPUT_STREAM_STDERR
	a.offsets[index(stderr)] = chunk.GetOffset() + int64(len(chunk.GetData()))
	w := a.o.Stdout
	if stderr {
		w = a.o.Stderr
	}
	if w == nil {
		return nil
	}
	if _, err := w.Write(chunk.GetData()); err != nil {
		return fmt.Errorf("write the output of exec %s: %w", a.execID, err)
	}
	return nil
}

func index(stderr bool) int {
	if stderr {
		return 1
	}
	return 0
}

// stdinOver ends the copying of standard input.
func (a *attaching) stdinOver(takenOver bool) {
	if a.input != nil && a.input.finish() && a.o.OnStdin != nil {
		a.o.OnStdin(takenOver)
	}
}

// control sends sizes, signals and the detach until ctx ends.
func (a *attaching) control(ctx context.Context, send func(*agboxv1.AttachExecRequest) error) {
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case a.o.Size = <-a.o.Resize:
			err = send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Resize{
				Resize: &agboxv1.TerminalSize{Columns: a.o.Size.Columns, Rows: a.o.Size.Rows},
			}})
		case sig := <-a.o.Signals:
			err = send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Signal{Signal: uint32(sig)}})
		case <-a.o.Detach:
			// The daemon ends the stream once it has read this: a stream that is cut off drops what was sent.
			_ = send(&agboxv1.AttachExecRequest{Request: &agboxv1.AttachExecRequest_Detach{Detach: true}})
			return
		}
		if err != nil {
			return // Recv has the reason
		}
	}
}
