package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/servicelog"
	"github.com/agbox/agbox/internal/wait"
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
