package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/internal/servicelog"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// serviceLogPause is the pause between two copies of the output of a service that is followed. Each is a call of the engine.
const serviceLogPause = time.Second

// sandboxLogs serves StreamLogs.
type sandboxLogs struct {
	*execLogs
	services *serviceLogs
	// read returns the stored output of a service, at most limit bytes of it.
	read func(sandboxID, service string, limit int64) ([]byte, error)
}

// StreamLogs implements agbox.v1.StreamService.
func (l *sandboxLogs) StreamLogs(req *agboxv1.StreamLogsRequest, stream grpc.ServerStreamingServer[agboxv1.LogChunk]) error {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return err
	}
	for field, offset := range map[string]int64{"stdout_offset": req.GetStdoutOffset(), "stderr_offset": req.GetStderrOffset()} {
		if offset < 0 || offset == math.MaxInt64 {
			return invalid(field, field+" must not be negative")
		}
	}
	if req.GetServiceName() != "" {
		return l.whileServing(stream.Context(), func(ctx context.Context) error { return l.service(ctx, req, stream.Send) })
	}
	return l.main(stream.Context(), req, stream.Send)
}

// main sends the output of the main process.
func (l *sandboxLogs) main(ctx context.Context, req *agboxv1.StreamLogsRequest, send func(*agboxv1.LogChunk) error) error {
	sb, err := l.store.Sandbox(ctx, req.GetSandboxId())
	if err != nil {
		return err
	}
	if len(sb.Spec.GetCommand()) == 0 {
		return invalid("sandbox_id", fmt.Sprintf("sandbox %s has no main process: its spec has no \"command\"", sb.ID))
	}
	var logs []*logReader
	for stream, offset := range map[agboxv1.OutputStream]int64{
		agboxv1.OutputStream_OUTPUT_STREAM_STDOUT: req.GetStdoutOffset(), agboxv1.OutputStream_OUTPUT_STREAM_STDERR: req.GetStderrOffset(),
	} {
		r := l.reader(store.Exec{ID: execid.Main, SandboxID: sb.ID}, stream, offset)
		defer r.close()
		if req.TailLines != nil && req.GetStdoutOffset() == 0 && req.GetStderrOffset() == 0 {
			if err := r.tail(int(req.GetTailLines())); err != nil {
				return err
			}
		}
		logs = append(logs, r)
	}
	grown, stopFollowing := l.outputs.Follow(sb.ID, execid.Main)
	defer stopFollowing()
	changed, stopWatching := l.store.Watch(sb.ID)
	defer stopWatching()
	return l.whileServing(ctx, func(ctx context.Context) error {
		for {
			sb, err := l.store.Sandbox(ctx, sb.ID)
			if err != nil {
				return ignoreGone(err)
			}
			for _, r := range logs {
				if err := sendMain(ctx, r, send); err != nil {
					return err
				}
			}
			if !req.GetFollow() || !mayRun(sb) {
				return nil
			}
			select {
			case <-grown:
			case _, open := <-changed:
				if !open {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// ignoreGone ignores that an object was purged.
func ignoreGone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// mayRun reports whether the containers of a sandbox may run, now or after what is under way.
func mayRun(sb store.Sandbox) bool {
	return sandboxstate.IsUp(sb.State) || sb.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING
}

func sendMain(ctx context.Context, r *logReader, send func(*agboxv1.LogChunk) error) error {
	size, err := r.size()
	if err != nil {
		return err
	}
	return sendTo(ctx, r, size, func(c *agboxv1.OutputChunk) error {
		return send(&agboxv1.LogChunk{Stream: c.GetStream(), Offset: c.GetOffset(), Data: c.GetData()})
	})
}

// tail moves to the start of the last lines. It reads at most maxTail bytes.
func (r *logReader) tail(lines int) error {
	const maxTail = 16 << 20
	size, err := r.size()
	if err != nil || size == 0 {
		return err
	}
	r.offset = size
	if lines == 0 {
		return nil
	}
	buf := make([]byte, agboxv1.PieceBytes)
	for at := size; at > max(0, size-maxTail); {
		n := min(at, agboxv1.PieceBytes)
		got, err := r.file.ReadAt(buf[:n], at-n)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for i := got - 1; i >= 0; i-- {
			if offset := at - n + int64(i); buf[i] == '\n' && offset != size-1 {
				if lines--; lines <= 0 {
					r.offset = offset + 1
					return nil
				}
			}
		}
		at -= n
		r.offset = at
	}
	return nil
}

// service sends the output of a service as records.
func (l *sandboxLogs) service(ctx context.Context, req *agboxv1.StreamLogsRequest, send func(*agboxv1.LogChunk) error) error {
	var seen []servicelog.Record
	for first := true; ; first = false {
		sb, err := l.store.Sandbox(ctx, req.GetSandboxId())
		if err != nil {
			return err
		}
		last := !req.GetFollow() || !mayRun(sb)
		resp, err := l.services.GetServiceLog(ctx, &agboxv1.GetServiceLogRequest{SandboxId: sb.ID, ServiceName: req.GetServiceName()})
		if err != nil {
			if last && !first {
				return nil // followed to the end, which was a delete
			}
			return err
		}
		if resp.GetProblem() != "" {
			if err := send(&agboxv1.LogChunk{Problem: resp.GetProblem()}); err != nil {
				return err
			}
		}
		data, err := l.read(sb.ID, req.GetServiceName(), servicelog.Limit)
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		all := servicelog.Parse(data)
		fresh := servicelog.After(seen, all, sameRecord)
		if first {
			fresh = chosen(fresh, req)
		}
		for _, r := range fresh {
			if err := send(recordChunk(r)); err != nil {
				return err
			}
		}
		if seen = all; last {
			return nil
		}
		if err := wait.For(ctx, serviceLogPause); err != nil {
			return err
		}
	}
}

func recordChunk(r servicelog.Record) *agboxv1.LogChunk {
	c := &agboxv1.LogChunk{Stream: agboxv1.OutputStream_OUTPUT_STREAM_STDOUT, Data: r.Text, Time: timestamppb.New(r.Time)}
	if r.Stderr {
		c.Stream = agboxv1.OutputStream_OUTPUT_STREAM_STDERR
	}
	return c
}

func sameRecord(a, b servicelog.Record) bool {
	return a.Time.Equal(b.Time) && a.Stderr == b.Stderr && bytes.Equal(a.Text, b.Text)
}

// chosen returns the records that a request selects.
func chosen(records []servicelog.Record, req *agboxv1.StreamLogsRequest) []servicelog.Record {
	if since := req.GetSince(); since != nil {
		first := 0
		for first < len(records) && records[first].Time.Before(since.AsTime()) {
			first++
		}
		records = records[first:]
	}
	if req.TailLines == nil {
		return records
	}
	lines, i := 0, len(records)
	for ; i > 0; i-- {
		if bytes.HasSuffix(records[i-1].Text, []byte("\n")) || i == len(records) {
			if lines++; lines > int(req.GetTailLines()) {
				break
			}
		}
	}
	return records[i:]
}
