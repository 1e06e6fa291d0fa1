package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

const (
	// backupChunk is far below the message size limit of any client.
	backupChunk = 256 << 10
	// maxBackups bounds the copies of the database that clients who do not read keep on the disk.
	maxBackups = 4
)

// Backup implements agbox.v1.AdminService.
func (s *Server) Backup(req *agboxv1.BackupRequest, stream grpc.ServerStreamingServer[agboxv1.BackupChunk]) error {
	if s.backups.Add(1) > maxBackups {
		s.backups.Add(-1)
		return &store.Refusal{Reason: "BACKUP_BUSY", Class: errdefs.ErrUnavailable, Message: "other backups are being made; try again when they are done"}
	}
	defer s.backups.Add(-1)
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-s.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	})
	w := bufio.NewWriterSize(chunks{stream}, backupChunk)
	err := s.deps.Backup(ctx, w, req.GetWithLogs())
	if err == nil {
		err = w.Flush()
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStopping) {
		return cause
	}
	return err
}

// chunks sends each write, of at most backupChunk bytes, as one message.
type chunks struct {
	stream grpc.ServerStreamingServer[agboxv1.BackupChunk]
}

var _ io.Writer = chunks{}

func (c chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), backupChunk)
		if err := c.stream.Send(&agboxv1.BackupChunk{Data: rest[:n]}); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}
