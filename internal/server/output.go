package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Outputs reads the logs of execs: *execjournal.Dir.
type Outputs interface {
	Follow(sandboxID, execID string) (changed <-chan struct{}, stop func())
	OpenOutput(sandboxID, execID string, stderr bool) (*execjournal.Output, error)
	OpenTimes(sandboxID, execID string, stderr bool) (*execjournal.LineTimes, error)
	LogLimit(sandboxID, execID string) (limit int64, ok bool, err error)
}

// logReader reads one growing log of an exec from an offset.
type logReader struct {
	outputs           Outputs
	sandboxID, execID string
	stream            agboxv1.OutputStream
	file              *execjournal.Output // nil while it does not exist
	offset            int64
	buf               []byte
}

func (o *execLogs) reader(e store.Exec, stream agboxv1.OutputStream, offset int64) *logReader {
	return &logReader{outputs: o.outputs, sandboxID: e.SandboxID, execID: e.ID, stream: stream, offset: offset}
}

// open opens the log if it exists.
func (r *logReader) open() error {
	if r.file != nil {
		return nil
	}
	f, err := r.outputs.OpenOutput(r.sandboxID, r.execID, r.stream == agboxv1.OutputStream_OUTPUT_STREAM_STDERR)
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case errors.Is(err, execjournal.ErrMalformed):
		return &store.Refusal{
			Reason: "LOG_REPLACED", Class: errdefs.ErrFailedPrecondition, Metadata: map[string]string{"exec_id": r.execID},
			Message: fmt.Sprintf("a log of exec %s is not a regular file: a process in the sandbox has replaced it", r.execID),
		}
	}
	r.file = f
	return err
}

// size returns the present size of the log.
func (r *logReader) size() (int64, error) {
	if err := r.open(); err != nil || r.file == nil {
		return 0, err
	}
	return r.file.Size()
}

// next returns the next piece before the offset end; nil if there is none yet. It is valid until the next call.
func (r *logReader) next(end int64) (*agboxv1.OutputChunk, error) {
	if err := r.open(); err != nil || r.file == nil || r.offset >= end {
		return nil, err
	}
	if r.buf == nil {
		r.buf = make([]byte, agboxv1.PieceBytes)
	}
	n, err := r.file.ReadAt(r.buf[:min(agboxv1.PieceBytes, end-r.offset)], r.offset)
	if n == 0 {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, err
	}
	chunk := &agboxv1.OutputChunk{Stream: r.stream, Offset: r.offset, Data: r.buf[:n]}
	r.offset += int64(n)
	return chunk, nil
}

func (r *logReader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

type logStore interface {
	Exec(ctx context.Context, execID string) (store.Exec, error)
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	Watch(id string) (changed <-chan struct{}, stop func())
}

type execLogs struct {
	*lifecycle
	store   logStore
	outputs Outputs
}

// ReadExecLog implements agbox.v1.StreamService.
func (o *execLogs) ReadExecLog(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.OutputChunk]) error {
	if err := required("exec_id", req.GetExecId()); err != nil {
		return err
	}
	if err := checkLog(req.GetStream(), req.GetOffset()); err != nil {
		return err
	}
	e, err := o.store.Exec(stream.Context(), req.GetExecId())
	if err != nil {
		return err
	}
	r := o.reader(e, req.GetStream(), req.GetOffset())
	defer r.close()
	return o.followExec(stream.Context(), e, func(ctx context.Context, e store.Exec) (done bool, err error) {
		size, err := r.size()
		if err != nil {
			return false, err
		}
		if e.End.GetStartedAt() != 0 && r.file == nil {
			return false, &store.Refusal{
				Reason: "LOG_NOT_FOUND", Class: errdefs.ErrNotFound, Metadata: map[string]string{"exec_id": e.ID, "sandbox_id": e.SandboxID},
				Message: fmt.Sprintf("the logs of exec %s were removed with sandbox %s, or by a process in it", e.ID, e.SandboxID),
			}
		}
		if e.End != nil && req.GetOffset() > size {
			return false, offsetBeyond(e.ID, req.GetOffset(), size)
		}
		if err := sendTo(ctx, r, size, stream.Send); err != nil {
			return false, err
		}
		return e.End != nil || !req.GetFollow(), nil
	})
}

// sendTo sends a log up to the offset end, as far as it reaches.
func sendTo(ctx context.Context, r *logReader, end int64, send func(*agboxv1.OutputChunk) error) error {
	for ctx.Err() == nil {
		chunk, err := r.next(end)
		if err != nil || chunk == nil {
			return err
		}
		if err := send(chunk); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// followExec calls look at once, and again whenever the logs of the exec grow or its sandbox changes, until look is done. look gets the exec as
// it was before the call: what it then reads of an ended exec is all of it.
func (o *execLogs) followExec(ctx context.Context, e store.Exec, look func(ctx context.Context, e store.Exec) (done bool, err error)) error {
	grown, stopFollowing := o.outputs.Follow(e.SandboxID, e.ID)
	defer stopFollowing()
	changed, stopWatching := o.store.Watch(e.SandboxID)
	defer stopWatching()
	return o.whileServing(ctx, func(ctx context.Context) error {
		for {
			if e.End == nil {
				var err error
				if e, err = o.store.Exec(ctx, e.ID); err != nil {
					return err
				}
			}
			done, err := look(ctx, e)
			if err != nil || done {
				return err
			}
			select {
			case <-grown:
			case _, open := <-changed:
				if !open {
					return nil // the history was purged
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

func checkLog(stream agboxv1.OutputStream, offset int64) error {
	switch {
	case stream != agboxv1.OutputStream_OUTPUT_STREAM_STDOUT && stream != agboxv1.OutputStream_OUTPUT_STREAM_STDERR:
		return invalid("stream", "stream must be OUTPUT_STREAM_STDOUT or OUTPUT_STREAM_STDERR")
	case offset < 0 || offset == math.MaxInt64:
		return invalid("offset", "offset must not be negative")
	}
	return nil
}

func offsetBeyond(execID string, offset, size int64) error {
	return &store.Refusal{
		Reason: "LOG_OFFSET_OUT_OF_RANGE", Class: errdefs.ErrOutOfRange, Metadata: map[string]string{"exec_id": execID},
		Message: fmt.Sprintf("the log of exec %s has %d bytes; offset %d is beyond it", execID, size, offset),
	}
}
