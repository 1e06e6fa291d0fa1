package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"

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
		w := &unpacker{to: f, sum: sha256.New()}
		for {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return true, w.end()
			}
			if err != nil {
				return true, err
			}
			if err := w.write(chunk.GetData()); err != nil {
				return true, err
			}
		}
	}
}

// The form of a backup file, as docs/backup.md has it.
const (
	backupMagic  = "agbox backup\r\n\x1a\n"
	backupHeader = 88
	backupSum    = sha256.Size
)

var errNoBackup = errors.New("the daemon sent an incomplete backup")

// unpacker takes the database out of a backup without logs, as it comes.
type unpacker struct {
	to   io.Writer
	sum  hash.Hash
	head []byte
	left int64 // bytes of the database still to be received
	tail []byte
}

func (u *unpacker) write(p []byte) error {
	if n := min(len(p), backupHeader-len(u.head)); n > 0 {
		u.head = append(u.head, p[:n]...)
		p = p[n:]
		if len(u.head) == backupHeader {
			if !bytes.HasPrefix(u.head, []byte(backupMagic)) || binary.BigEndian.Uint32(u.head[16:]) != 1 {
				return errNoBackup
			}
			u.sum.Write(u.head)
			u.left = int64(binary.BigEndian.Uint64(u.head[40:]))
		}
	}
	if n := min(int64(len(p)), u.left); n > 0 {
		u.sum.Write(p[:n])
		if _, err := u.to.Write(p[:n]); err != nil {
			return err
		}
		u.left -= n
		p = p[n:]
	}
	if u.tail = append(u.tail, p...); len(u.tail) > backupSum {
		return errNoBackup
	}
	return nil
}

func (u *unpacker) end() error {
	if u.left != 0 || len(u.head) != backupHeader || !bytes.Equal(u.tail, u.sum.Sum(nil)) {
		return errNoBackup
	}
	return nil
}
