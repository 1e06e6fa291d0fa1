package server

import (
	"bufio"
	"context"
	"io"
	"slices"

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
	return s.whileServing(stream.Context(), func(ctx context.Context) error {
		w := bufio.NewWriterSize(chunks{stream}, backupChunk)
		if err := s.deps.Backup(ctx, w, req.GetWithLogs()); err != nil {
			return err
		}
		return w.Flush()
	})
}

// chunks sends each write, of at most backupChunk bytes, as one message.
type chunks struct {
	stream grpc.ServerStreamingServer[agboxv1.BackupChunk]
}

var _ io.Writer = chunks{}

func (c chunks) Write(p []byte) (int, error) {
	sent := 0
	for part := range slices.Chunk(p, backupChunk) {
		if err := c.stream.Send(&agboxv1.BackupChunk{Data: part}); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}
