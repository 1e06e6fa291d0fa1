package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// CopyExecLog copies one log of an exec from an offset on to w, what is there now, and returns the offset behind it. It continues after a lost
// connection. With follow it goes on until the exec has ended; Attach follows both logs at once.
func (c *Client) CopyExecLog(ctx context.Context, execID string, stderr bool, offset int64, follow bool, w io.Writer) (int64, error) {
	req := &agboxv1.ReadExecLogRequest{ExecId: execID, Stream: streamOf(stderr), Offset: offset, Follow: follow}
	var failed error
	subscribe(ctx, c, c.streams.ReadExecLog, req, true, nil, func(chunk *agboxv1.OutputChunk, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		if _, err := w.Write(chunk.GetData()); err != nil {
			failed = fmt.Errorf("write the log of exec %s: %w", execID, err)
			return false
		}
		req.Offset = chunk.GetOffset() + int64(len(chunk.GetData()))
		return true
	})
	return req.GetOffset(), failed
}

func streamOf(stderr bool) agboxv1.OutputStream {
	if stderr {
		return agboxv1.OutputStream_OUTPUT_STREAM_STDERR
	}
	return agboxv1.OutputStream_OUTPUT_STREAM_STDOUT
}

// Logs iterates over the output of a sandbox's main process, or of the service that the request names. With follow it continues after a
// restart of the daemon where it was.
func (c *Client) Logs(ctx context.Context, req *agboxv1.StreamLogsRequest) iter.Seq2[*agboxv1.LogChunk, error] {
	return func(yield func(*agboxv1.LogChunk, error) bool) {
		req := proto.CloneOf(req)
		var last time.Time // of the records of a service
		same, skip := 0, 0 // how many were delivered of that time, and are skipped after a reconnect
		open := func(ctx context.Context, req *agboxv1.StreamLogsRequest, o ...grpc.CallOption) (grpc.ServerStreamingClient[agboxv1.LogChunk], error) {
			skip = same
			return c.streams.StreamLogs(ctx, req, o...)
		}
		subscribe(ctx, c, open, req, true, nil, func(chunk *agboxv1.LogChunk, err error) bool {
			if err != nil || chunk.GetProblem() != "" {
				return yield(chunk, err)
			}
			if at := chunk.GetTime(); req.GetServiceName() != "" {
				if at.AsTime().Equal(last) && skip > 0 {
					skip--
					return true
				}
				if !at.AsTime().Equal(last) {
					last, same = at.AsTime(), 0
				}
				same++
				req.Since, req.TailLines = at, nil
				return yield(chunk, nil)
			}
			req.TailLines = nil
			next := chunk.GetOffset() + int64(len(chunk.GetData()))
			if chunk.GetStream() == agboxv1.OutputStream_OUTPUT_STREAM_STDERR {
				req.StderrOffset = next
			} else {
				req.StdoutOffset = next
			}
			return len(chunk.GetData()) == 0 || yield(chunk, nil) // without data it only says where the stream starts
		})
	}
}
