// Package hub is the daemon's end of the live channels: it serves one Unix socket for each sandbox, accepts the main process of its
// container only, and opens streams through it. All state is in memory: after a restart of the daemon each PID 1 dials again.
package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/channel"
)

const (
	// helloTimeout bounds the first frame of a connection.
	helloTimeout = 5 * time.Second
	// controlWait is how long Open waits for PID 1 to dial: after a restart of the daemon it takes milliseconds, without inotify 2 s.
	controlWait = 3 * time.Second
	// openTimeout bounds the answer to an Open: PID 1 may have to start a worker first, on a busy machine.
	openTimeout = 20 * time.Second
	// maxStreams is the number of streams of one sandbox, open and being opened.
	maxStreams = 8192
	// maxOpening is the number of streams of one sandbox that are being opened; more wait. PID 1 never blocks, so it refuses what the
	// sockets do not hold.
	maxOpening = 128
	// maxGreeting is the number of connections of one sandbox whose Hello is awaited.
	maxGreeting = 2 * maxOpening
	// unaskedRate is the number of connections of one sandbox each second that answer no Open, once unaskedBurst of them were accepted. Those beyond
	// it, and all others of this sandbox with them, wait in the queue of its socket.
	unaskedRate  = 100
	unaskedBurst = 200
)

// Drop reasons: why a connection or a stream was ended by the hub.
const (
	DropPeer     = "peer"     // the peer is not the main process of the container
	DropHello    = "hello"    // no Hello in time, or a bad one
	DropToken    = "token"    // no open stream has this token
	DropFlood    = "flood"    // too many connections at once
	DropProtocol = "protocol" // a bad frame on the control connection
)

// DropReasons lists all of them.
var DropReasons = []string{DropPeer, DropHello, DropToken, DropFlood, DropProtocol}

// Options are the dependencies of a Hub, all of them required.
type Options struct {
	// Dir returns the directory of a sandbox that its container sees as the exec directory of ctl.
	Dir func(sandboxID string) string
	// MainProcess returns the process ID, on this host, of the main process of the sandbox's container. It may ask the engine.
	MainProcess func(ctx context.Context, sandboxID string) (pid int, err error)
	// Dropped counts ended connections by reason.
	Dropped func(reason string)
	Logger  *slog.Logger
}

// Hub serves the channels of all sandboxes. Its methods may be called concurrently.
type Hub struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	ends map[string]*end // by sandbox ID
}

// New returns a Hub that serves nothing yet.
func New(o Options) *Hub {
	h := &Hub{o: o, ends: map[string]*end{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close ends all connections, and waits for the hub's goroutines. Streams that were handed out belong to their callers.
func (h *Hub) Close() {
	h.cancel()
	h.mu.Lock()
	for _, e := range h.ends {
		e.close()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// Serve listens for PID 1 of a sandbox. Idempotent; it listens again if the directory was made again. Errors: I/O. A sandbox whose
// socket cannot be served works without streams.
func (h *Hub) Serve(sandboxID string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil
	}
	dir := h.o.Dir(sandboxID)
	if e := h.ends[sandboxID]; e != nil {
		if e.socketExists(dir) {
			return nil
		}
		e.close()
		delete(h.ends, sandboxID)
	}
	l, err := listen(dir)
	if err != nil {
		return fmt.Errorf("serve the channel of sandbox %s: %w", sandboxID, err)
	}
	e := newEnd(h, sandboxID, l)
	h.ends[sandboxID] = e
	h.wg.Go(e.accept)
	return nil
}

// Forget stops serving a sandbox. Idempotent.
func (h *Hub) Forget(sandboxID string) {
	h.mu.Lock()
	e := h.ends[sandboxID]
	delete(h.ends, sandboxID)
	h.mu.Unlock()
	if e != nil {
		e.close()
	}
}

// Connected reports whether PID 1 of the sandbox is connected now.
func (h *Hub) Connected(sandboxID string) bool {
	e := h.end(sandboxID)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.control != nil
}

// Count returns the number of sandboxes whose PID 1 is connected.
func (h *Hub) Count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ends {
		e.mu.Lock()
		if e.control != nil {
			n++
		}
		e.mu.Unlock()
	}
	return n
}

func (h *Hub) end(sandboxID string) *end {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ends[sandboxID]
}

// OpenExec returns a stream to the supervisor of an exec, once that runs.
func (h *Hub) OpenExec(ctx context.Context, sandboxID, execID string) (net.Conn, error) {
	return h.open(ctx, sandboxID, channel.Frame{Exec: execID})
}

// Open returns a stream to a worker of a user; empty: the user of the sandbox's execs. Errors: failed precondition if the container has no
// channel; unavailable; resource exhausted; those of ctx.
func (h *Hub) Open(ctx context.Context, sandboxID, user string) (net.Conn, error) {
	return h.open(ctx, sandboxID, channel.Frame{User: user})
}

func (h *Hub) open(ctx context.Context, sandboxID string, f channel.Frame) (net.Conn, error) {
	e := h.end(sandboxID)
	if e == nil {
		return nil, &Unavailable{SandboxID: sandboxID, why: "its container is not running"}
	}
	control, err := e.awaitControl(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case e.opening <- struct{}{}:
		defer func() { <-e.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.Kind, f.Text = channel.Open, rand.Text()
	answer, forget, err := e.expect(control, f.Text)
	if err != nil {
		return nil, err
	}
	defer forget()
	if err := control.send(f); err != nil {
		return nil, &Unavailable{SandboxID: sandboxID, why: "its connection broke"}
	}
	timer := time.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case a := <-answer:
		return a.conn, a.err
	case <-timer.C:
		return nil, fmt.Errorf("sandbox %s did not open a stream in %s: %w", sandboxID, openTimeout, errdefs.ErrUnavailable)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Unavailable says that a sandbox has no live channel. Its class is failed precondition.
type Unavailable struct {
	SandboxID string
	why       string
}

// Error implements error.
func (u *Unavailable) Error() string {
	return fmt.Sprintf("sandbox %s has no live channel: %s", u.SandboxID, u.why)
}

// FailedPrecondition marks the class for errdefs.
func (u *Unavailable) FailedPrecondition() {}

// Refused is PID 1's refusal to open a stream. Its class is failed precondition.
type Refused struct {
	Reason  string // of the API, may be empty
	Message string
}

// Error implements error.
func (r *Refused) Error() string { return r.Message }

// FailedPrecondition marks the class for errdefs.
func (r *Refused) FailedPrecondition() {}

var errTooMany = fmt.Errorf("the sandbox has %d open streams, the most that it may have: close some: %w", maxStreams, errdefs.ErrResourceExhausted)

var errGone = errors.New("the main process of the container disconnected")
