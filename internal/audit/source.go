package audit

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// ErrRunning says that the database is in use: ask the daemon for a copy.
var ErrRunning = errors.New("the database is in use by a running agboxd")

// FromFile copies the database of a daemon that does not run. It holds a shared lock meanwhile, which a daemon that starts waits
// for. Errors: ErrRunning; the I/O error.
func FromFile(path string) Source {
	return func(ctx context.Context, f *os.File) (bool, error) {
		src, err := os.Open(path)
		if err != nil {
			return false, err
		}
		defer src.Close()
		if err := unix.Flock(int(src.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return false, ErrRunning
		} else if err != nil {
			return false, fmt.Errorf("lock %s: %w", path, err)
		}
		_, err = io.Copy(f, src)
		return false, errors.Join(err, ctx.Err())
	}
}

// FromDaemon copies the database of a running daemon. Errors: those of the call; an incomplete stream.
func FromDaemon(client agboxv1.AdminServiceClient) Source {
	return func(ctx context.Context, f *os.File) (bool, error) {
		stream, err := client.Backup(ctx, &agboxv1.BackupRequest{})
		if err != nil {
			return true, err
		}
		return true, unpack(&chunks{stream: stream}, f)
	}
}

// chunks reads the bytes of a backup as they come.
type chunks struct {
	stream grpc.ServerStreamingClient[agboxv1.BackupChunk]
	left   []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	for len(c.left) == 0 {
		chunk, err := c.stream.Recv()
		if err != nil {
			return 0, err
		}
		c.left = chunk.GetData()
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

// unpack takes the database out of a backup: a tar archive whose last file is the checksum of all before it.
func unpack(r io.Reader, to io.Writer) error {
	sum := &lagging{sum: sha256.New()}
	files := tar.NewReader(io.TeeReader(r, sum))
	for {
		head, err := files.Next()
		if err != nil {
			return fmt.Errorf("the daemon sent an incomplete backup: %w", err)
		}
		switch head.Name {
		case "ids.db":
			if _, err := io.Copy(to, files); err != nil {
				return err
			}
		case "SHA-256":
			before := hex.EncodeToString(sum.sum.Sum(nil))
			got, err := io.ReadAll(files)
			if err == nil {
				_, err = io.Copy(io.Discard, r) // the end of the call says whether it went well
			}
			if err == nil && string(got) != before {
				err = errors.New("its checksum is wrong")
			}
			return err
		}
	}
}

// lagging is the checksum of all that is written but the last tar header.
type lagging struct {
	sum  hash.Hash
	last []byte
}

func (l *lagging) Write(p []byte) (int, error) {
	const header = 512
	l.last = append(l.last, p...)
	if n := len(l.last) - header; n > 0 {
		l.sum.Write(l.last[:n])
		l.last = append(l.last[:0], l.last[n:]...)
	}
	return len(p), nil
}
