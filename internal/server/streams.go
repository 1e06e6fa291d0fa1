package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/store"
)

// Streams opens streams into sandboxes.
type Streams interface {
	// Connected reports whether the live channel of a sandbox is connected. It does not block.
	Connected(sandboxID string) bool
	// Open returns a connection to a worker of a READY sandbox that runs as user, ready for a Request frame; an empty user is that of the
	// sandbox's execs. Errors: ErrFailedPrecondition when the container has no channel; ErrResourceExhausted; ErrUnavailable.
	Open(ctx context.Context, sandboxID, user string) (net.Conn, error)
}

const (
	// maxSandboxStreams and maxWorkerStreams bound the open streams of one sandbox and of all: each takes a descriptor and some goroutines.
	maxSandboxStreams = 4096
	maxWorkerStreams  = 16384
	// maxOpening is the number of streams of one sandbox that wait for their first answer. Further ones wait here: PID 1 must not block, so
	// it drops what its link to a worker does not hold, some 250 connections.
	maxOpening = 128

	reasonStreamLost  = "STREAM_LOST"
	reasonStreamLimit = "STREAM_LIMIT"
)

// workers opens streams to workers, for READY sandboxes, within the bounds.
type workers struct {
	store interface {
		Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	}
	streams Streams

	mu   sync.Mutex
	open map[string]*openStreams // by sandbox ID
	all  int
}

// openStreams are the streams of one sandbox.
type openStreams struct {
	n       int
	opening chan struct{} // a slot for each that waits for its first answer
}

// workerStream is a stream with its request sent. The caller ends it with end.
type workerStream struct {
	net.Conn
	frames    *channel.Reader
	sandboxID string
	path      string
	opened    func() // at the first answer
	release   func()
}

// Read implements io.Reader.
func (s *workerStream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.opened()
	return n, err
}

// end closes the stream. It may be called twice.
func (s *workerStream) end() {
	s.release()
	_ = s.Close()
}

// ready refuses a sandbox that does not run.
func ready(sb store.Sandbox) error {
	refusal := &store.Refusal{
		Class: errdefs.ErrFailedPrecondition, Reason: "SANDBOX_NOT_READY", Metadata: map[string]string{"sandbox_id": sb.ID},
		Message: fmt.Sprintf("sandbox %s is not ready", sb.ID),
	}
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_READY:
		return nil
	case agboxv1.SandboxState_SANDBOX_STATE_PAUSED:
		refusal.Reason, refusal.Message = "SANDBOX_PAUSED", fmt.Sprintf("sandbox %s is paused; resume it first", sb.ID)
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		refusal.Message = fmt.Sprintf("sandbox %s is stopped; resume it first", sb.ID)
	}
	return refusal
}

// call opens a stream for a request. The stream is closed when ctx ends.
func (w *workers) call(ctx context.Context, sandboxID, user string, c channel.Call) (*workerStream, error) {
	if err := required("sandbox_id", sandboxID); err != nil {
		return nil, err
	}
	sb, err := w.store.Sandbox(ctx, sandboxID)
	if err == nil {
		err = ready(sb)
	}
	if err != nil {
		return nil, err
	}
	return w.callReady(ctx, sandboxID, user, c)
}

func (w *workers) callReady(ctx context.Context, sandboxID, user string, c channel.Call) (*workerStream, error) {
	streams, err := w.acquire(sandboxID)
	if err != nil {
		return nil, err
	}
	put := sync.OnceFunc(func() { w.put(sandboxID) })
	select {
	case streams.opening <- struct{}{}:
	case <-ctx.Done():
		put()
		return nil, context.Cause(ctx)
	}
	opened := sync.OnceFunc(func() { <-streams.opening })
	release := func() { opened(); put() }
	conn, err := w.streams.Open(ctx, sandboxID, user)
	if err != nil {
		release()
		return nil, notOpened(sandboxID, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	s := &workerStream{Conn: conn, sandboxID: sandboxID, path: c.Path, opened: opened, release: func() { stop(); release() }}
	s.frames = channel.NewReader(s)
	if err := channel.WriteJSON(conn, channel.Request, c); err != nil {
		s.end()
		return nil, s.failed(ctx, err)
	}
	return s, nil
}

// notOpened makes the error of a stream that was not opened a part of the contract.
func notOpened(sandboxID string, err error) error {
	refusal := &store.Refusal{Message: err.Error(), Metadata: map[string]string{"sandbox_id": sandboxID}}
	switch _, already := errors.AsType[*store.Refusal](err); {
	case already:
		return err
	case errdefs.IsFailedPrecondition(err):
		refusal.Class, refusal.Reason = errdefs.ErrFailedPrecondition, "CHANNEL_UNAVAILABLE"
	case errdefs.IsResourceExhausted(err):
		refusal.Class, refusal.Reason = errdefs.ErrResourceExhausted, reasonStreamLimit
	default:
		return err
	}
	return refusal
}

func (w *workers) acquire(sandboxID string) (*openStreams, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit, name, whose := maxSandboxStreams, "file_streams_per_sandbox", "sandbox "+sandboxID+" has"
	if w.all >= maxWorkerStreams {
		limit, name, whose = maxWorkerStreams, "file_streams", "all sandboxes together have"
	} else {
		s := w.open[sandboxID]
		if s == nil {
			s = &openStreams{opening: make(chan struct{}, maxOpening)}
			w.open[sandboxID] = s
		}
		if s.n < limit {
			s.n++
			w.all++
			return s, nil
		}
	}
	return nil, &store.Refusal{
		Class: errdefs.ErrResourceExhausted, Reason: reasonStreamLimit, Metadata: map[string]string{"sandbox_id": sandboxID, "limit": name, "limit_value": strconv.Itoa(limit)},
		Message: fmt.Sprintf("%s %d open file operations and tunnels, which is the limit; close some", whose, limit),
	}
}

func (w *workers) put(sandboxID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if s := w.open[sandboxID]; s.n > 1 {
		s.n--
	} else {
		delete(w.open, sandboxID)
	}
}

// classes are the classes of a worker's reasons.
var classes = map[string]error{
	channel.FileNotFound: errdefs.ErrNotFound, channel.FileExists: errdefs.ErrAlreadyExists, channel.FilePermission: errdefs.ErrPermissionDenied,
	channel.FileType: errdefs.ErrInvalidArgument, channel.FileNotEmpty: errdefs.ErrFailedPrecondition, channel.FileBusy: errdefs.ErrFailedPrecondition,
	channel.FileNoSpace: errdefs.ErrResourceExhausted, channel.FileChanged: errdefs.ErrAborted, channel.FileOffset: errdefs.ErrOutOfRange,
	channel.FileIO: errdefs.ErrFailedPrecondition, channel.ArchiveInvalid: errdefs.ErrInvalidArgument, channel.WatchLimit: errdefs.ErrResourceExhausted,
	channel.PortRefused: errdefs.ErrFailedPrecondition, channel.UserUnknown: errdefs.ErrInvalidArgument, channel.BadCall: errdefs.ErrFailedPrecondition,
}

// failed returns the error of a stream for the client.
func (s *workerStream) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the stream was closed because of it
	}
	metadata := map[string]string{"sandbox_id": s.sandboxID}
	if failed, ok := errors.AsType[*channel.Failed](err); ok {
		class := classes[failed.Reason]
		if class == nil { // the worker is a process of the sandbox
			return &store.Refusal{Class: errdefs.ErrFailedPrecondition, Reason: channel.FileIO, Message: "the sandbox gave an unknown answer", Metadata: metadata}
		}
		if s.path != "" {
			metadata["path"] = s.path
		}
		return &store.Refusal{Class: class, Reason: failed.Reason, Message: failed.Message, Metadata: metadata}
	}
	return &store.Refusal{
		Class: errdefs.ErrUnavailable, Reason: reasonStreamLost, Metadata: metadata,
		Message: fmt.Sprintf("the stream into sandbox %s was cut off: the sandbox stopped, or its process for files and ports was killed", s.sandboxID),
	}
}
