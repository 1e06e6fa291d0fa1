package dockerx

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// The engine keeps logFiles files of at most logFileSize each of what a container prints: with two files, the newest logFileSize are always
// there.
const (
	logFileSize = "512k"
	logFiles    = "2"
)

// maxLogBytes bounds the answer to ReadLogs. It is far more than the engine keeps of a container that this package created.
const maxLogBytes = 16 << 20

// maxLogRecord bounds one record of an answer. The engine splits lines at 16 KiB.
const maxLogRecord = 1 << 20

// LogRecord is a line that a container printed, or a part of a long one.
type LogRecord struct {
	Time   time.Time
	Stderr bool
	// Text is the line with its newline. Without one, the next record of the same stream continues the line.
	Text []byte
}

// ReadLogs returns what the engine has kept of a container's output, over all its runs, the oldest record first; only the last records if tail
// is positive. Memory use is bounded. Errors: ErrNotFound; ErrUnavailable.
func (e *Engine) ReadLogs(ctx context.Context, id string, tail int) ([]LogRecord, error) {
	return ask(ctx, e, OpReadLogs, "read logs of container "+id, func(ctx context.Context, c *client.Client) ([]LogRecord, error) {
		o := container.LogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true}
		if tail > 0 {
			o.Tail = strconv.Itoa(tail)
		}
		answer, err := c.ContainerLogs(ctx, id, o)
		if err != nil {
			return nil, reclass(err, errdefs.IsConflict, errdefs.ErrNotFound) // it is being removed, or its removal has failed
		}
		defer answer.Close()
		return parseLogs(io.LimitReader(answer, maxLogBytes))
	})
}

// parseLogs reads frames of one record each: the stream, three zero bytes, the size, and the text after its time.
func parseLogs(r io.Reader) (out []LogRecord, err error) {
	var header [8]byte
	for {
		if _, err := io.ReadFull(r, header[:]); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("the answer is cut off: %w: %w", err, errdefs.ErrUnavailable)
		}
		size := binary.BigEndian.Uint32(header[4:])
		if size > maxLogRecord {
			return nil, fmt.Errorf("the answer has a record of %d bytes: %w", size, errdefs.ErrUnavailable)
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, fmt.Errorf("the answer is cut off: %w: %w", err, errdefs.ErrUnavailable)
		}
		stamp, text, _ := bytes.Cut(frame, []byte(" "))
		at, err := time.Parse(time.RFC3339Nano, string(stamp))
		if err != nil {
			return nil, fmt.Errorf("the answer has a record without a time: %w", errdefs.ErrUnavailable)
		}
		out = append(out, LogRecord{Time: at, Stderr: header[0] == 2, Text: text})
	}
}
