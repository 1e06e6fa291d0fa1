package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Writers knows which execs have a client that writes their standard input. All state is in memory: after a restart of the daemon no client is
// attached, and the passes over the execs find that.
type Writers struct {
	mu  sync.Mutex
	all map[string]*writer // by exec ID
}

// writer is the writing client of one exec.
type writer struct {
	replaced func() // called when another client takes over
}

// Has reports whether a client writes the standard input of an exec.
func (w *Writers) Has(execID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[execID] != nil
}

// add registers a writer, in place of another one only with takeOver. It reports whether there was room for it.
func (w *Writers) add(execID string, one *writer, takeOver bool) bool {
	w.mu.Lock()
	old := w.all[execID]
	if old != nil && !takeOver {
		w.mu.Unlock()
		return false
	}
	if w.all == nil {
		w.all = map[string]*writer{}
	}
	w.all[execID] = one
	w.mu.Unlock()
	if old != nil {
		old.replaced()
	}
	return true
}

// is reports whether one is still the writer.
func (w *Writers) is(execID string, one *writer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[execID] == one
}

func (w *Writers) remove(execID string, one *writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[execID] == one {
		delete(w.all, execID)
	}
}

// stdinLink is the connection over which a client reaches the supervisor of an exec: standard input, the size of the terminal, signals.
type stdinLink struct {
	c       *attachment
	conn    net.Conn
	me      *writer // nil: not the writer
	reading chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when acked, ended or lost changes
	acked   int64
	next    int64 // offset of the next byte to send
	ended   bool  // no more input is accepted
	lost    bool  // the connection is over, or another client writes
	keep    bool  // the client leaves on purpose
}

// connect opens the connection of a client and registers it as the writer if it wants to be.
func (c *attachment) connect(ctx context.Context) (*stdinLink, error) {
	sb, err := c.store.Sandbox(ctx, c.exec.SandboxID)
	if err != nil {
		return nil, err
	}
	if sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		return nil, ready(sb) // PID 1 is frozen and answers nothing
	}
	l := &stdinLink{c: c, changed: make(chan struct{}), reading: make(chan struct{})}
	close(l.reading)
	if c.start.GetStdin() && c.exec.Request.GetStdin() != nil {
		l.me = &writer{replaced: l.replaced}
		if !c.writers.add(c.exec.ID, l.me, c.start.GetTakeOver()) {
			return nil, &store.Refusal{
				Reason: "STDIN_IN_USE", Class: errdefs.ErrFailedPrecondition, Metadata: map[string]string{"exec_id": c.exec.ID},
				Message: fmt.Sprintf("another client writes the standard input of exec %s; take it over, or attach without standard input", c.exec.ID),
			}
		}
		if err := c.store.AttachStdin(ctx, c.exec.ID); err != nil {
			l.close()
			if errdefs.IsFailedPrecondition(err) {
				return nil, errEnded
			}
			return nil, err
		}
	}
	if err := l.dial(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// dial connects to the supervisor and starts to read what it sends.
func (l *stdinLink) dial(ctx context.Context) (err error) {
	opening, stop := l.c.untilEnd(ctx)
	l.conn, err = l.c.channels.OpenExec(opening, l.c.exec.SandboxID, l.c.exec.ID)
	stop()
	if err != nil {
		return l.refused(err)
	}
	attach := channel.Frame{Kind: channel.Attach, Columns: l.c.start.GetSize().GetColumns(), Rows: l.c.start.GetSize().GetRows()}
	if l.me != nil {
		attach.Stream = 1
	}
	r := channel.NewReader(l.conn)
	_ = l.conn.SetDeadline(time.Now().Add(endPatience))
	answer, err := channel.Frame{}, channel.Write(l.conn, attach)
	if err == nil {
		answer, err = r.Read()
	}
	if err != nil || answer.Kind != channel.Attached {
		return errEnded // the supervisor was about to exit
	}
	_ = l.conn.SetDeadline(time.Time{})
	l.acked, l.next, l.ended = answer.Number, answer.Offset, answer.Stream != 0
	l.reading = make(chan struct{})
	l.c.goes(func() {
		defer close(l.reading)
		l.read(ctx, r)
	})
	return nil
}

// untilEnd returns a context that ends when the exec does. stop must be called.
func (c *attachment) untilEnd(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	changed, stopWatching := c.store.Watch(c.exec.SandboxID)
	over := make(chan struct{})
	c.goes(func() {
		defer close(over)
		for {
			if e, err := c.store.Exec(ctx, c.exec.ID); err != nil || e.End != nil {
				cancel(errEnded)
			}
			select {
			case _, open := <-changed:
				if !open {
					cancel(errEnded)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		<-over
		stopWatching()
	}
}

// refused is the error of a connection that was not opened. PID 1 refuses one only if the supervisor of the exec is gone, so the end of the exec
// is recorded or about to be.
func (l *stdinLink) refused(err error) error {
	var no *hub.Refused
	if errors.Is(err, errEnded) || errors.As(err, &no) {
		return errEnded
	}
	return noChannel(l.c.exec, err)
}

func (l *stdinLink) close() {
	if l.conn != nil {
		l.conn.Close()
	}
	<-l.reading
	if l.me == nil {
		return
	}
	l.mu.Lock()
	keep := l.keep // the client's last request may come at this moment
	l.mu.Unlock()
	if l.c.writers.is(l.c.exec.ID, l.me) {
		ctx, cancel := context.WithTimeout(context.Background(), writerTimeout)
		defer cancel()
		// A failure, such as that of an ended exec, needs no handling: a pass finds an exec whose writer is gone.
		_ = l.c.store.DetachStdin(ctx, l.c.exec.ID, keep)
	}
	l.c.writers.remove(l.c.exec.ID, l.me)
}

// update changes the link and wakes who waits for it.
func (l *stdinLink) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// replaced ends the role of the writer.
func (l *stdinLink) replaced() {
	l.update(func() { l.lost = true })
	l.ack(&agboxv1.StdinAck{TakenOver: true})
}

func (l *stdinLink) ack(a *agboxv1.StdinAck) {
	_ = l.c.send(&agboxv1.AttachExecResponse{Response: &agboxv1.AttachExecResponse_StdinAck{StdinAck: a}}) // a broken stream ends the call
}

// read handles what the supervisor sends, until the connection is over. Then the exec ends soon, or the client has to attach again.
func (l *stdinLink) read(ctx context.Context, r *channel.Reader) {
	for {
		f, err := r.Read()
		if err != nil {
			l.update(func() { l.lost, l.ended = true, true })
			if wait.For(ctx, endPatience) == nil {
				l.c.cancel(fmt.Errorf("the connection to exec %s broke: %w", l.c.exec.ID, errdefs.ErrUnavailable))
			}
			return
		}
		if f.Kind == channel.StdinAck {
			l.update(func() { l.acked, l.ended = f.Offset, f.Stream != 0 })
			l.ack(&agboxv1.StdinAck{Offset: f.Offset, Closed: f.Stream != 0})
		}
	}
}

// obey carries out one request of the client.
func (l *stdinLink) obey(ctx context.Context, req *agboxv1.AttachExecRequest) error {
	switch r := req.GetRequest().(type) {
	case *agboxv1.AttachExecRequest_Stdin:
		return l.write(ctx, r.Stdin)
	case *agboxv1.AttachExecRequest_Resize:
		return l.frame(channel.Frame{Kind: channel.Resize, Columns: r.Resize.GetColumns(), Rows: r.Resize.GetRows()})
	case *agboxv1.AttachExecRequest_Signal:
		if r.Signal == 0 || r.Signal > 64 {
			return invalid("signal", "signal must be 1 to 64")
		}
		return l.frame(channel.Frame{Kind: channel.Signal, Number: int64(r.Signal)})
	case *agboxv1.AttachExecRequest_Detach:
		l.update(func() { l.keep = r.Detach })
		return errDetached
	}
	return invalid("request", "start must be the first request, and no other")
}

// write sends a piece of standard input, as far as the window of the supervisor allows, and waits with the rest.
func (l *stdinLink) write(ctx context.Context, in *agboxv1.StdinChunk) error {
	data := in.GetData()
	if l.me == nil {
		return invalid("stdin", "this client is not the writer of standard input; set stdin in start")
	}
	if l.over() {
		return nil // what the exec does not take needs no order
	}
	if in.GetOffset() < 0 || in.GetOffset() > l.next {
		return invalid("stdin.offset", fmt.Sprintf("stdin.offset is %d, but standard input was sent up to %d only", in.GetOffset(), l.next))
	}
	if skip := l.next - in.GetOffset(); skip > 0 {
		data = data[min(skip, int64(len(data))):]
	}
	for len(data) > 0 {
		room, err := l.room(ctx)
		if err != nil || room == 0 {
			return err
		}
		n := min(int64(len(data)), room, channel.MaxData)
		if err := l.frame(channel.Frame{Kind: channel.Stdin, Offset: l.next, Data: data[:n]}); err != nil {
			return err
		}
		l.next, data = l.next+n, data[n:]
	}
	if in.GetClose() {
		return l.frame(channel.Frame{Kind: channel.StdinEnd, Offset: l.next})
	}
	return nil
}

// over reports whether no more input is accepted.
func (l *stdinLink) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost || l.ended
}

// room returns how many bytes may be sent now, and waits until it is one at least; 0: no more input is accepted.
func (l *stdinLink) room(ctx context.Context) (int64, error) {
	for {
		l.mu.Lock()
		room, over, changed := l.acked+channel.StdinWindow-l.next, l.lost || l.ended, l.changed
		l.mu.Unlock()
		switch {
		case over:
			return 0, nil
		case room > 0:
			return room, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// frame sends one frame. A broken connection is no error: the end of the exec follows.
func (l *stdinLink) frame(f channel.Frame) error {
	if err := channel.Write(l.conn, f); err != nil {
		l.update(func() { l.lost, l.ended = true, true })
	}
	return nil
}
