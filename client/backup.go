package client

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Backup writes a backup file of the daemon's records to w, with the logs of execs if withLogs. What was written is a
// backup only if the error is nil.
func (c *Client) Backup(ctx context.Context, w io.Writer, withLogs bool) error {
	p := c.patient(ctx)
	defer p.end()
	p.connect()
	ctx, cancel := context.WithCancel(ctx) // ends the stream when w fails
	defer cancel()
	stream, err := c.admin.Backup(ctx, &agboxv1.BackupRequest{WithLogs: withLogs})
	if err != nil {
		return c.fromStatus(err)
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ended(ctx, c.fromStatus(err))
		}
		if _, err := w.Write(chunk.GetData()); err != nil {
			return err
		}
	}
}
