package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

func backingUp(fn func(ctx context.Context, w io.Writer, withLogs bool) error) func(*server.Deps) {
	return func(d *server.Deps) { d.Backup = fn }
}

// receive returns what one call sends.
func (f *fixture) receive(ctx context.Context) ([]byte, error) {
	stream, err := f.admin.Backup(ctx, &agboxv1.BackupRequest{WithLogs: true})
	f.must(err)
	var all []byte
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, chunk.GetData()...)
	}
}

func TestABackupIsSentInChunks(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 300_000)
	f := newFixture(t, backingUp(func(_ context.Context, w io.Writer, withLogs bool) error {
		if !withLogs {
			t.Error("the wish for logs is lost")
		}
		if _, err := w.Write(want[:5]); err != nil {
			return err
		}
		_, err := w.Write(want[5:])
		return err
	}))
	if got, err := f.receive(t.Context()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestABackupOfTheStore(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) {
		m := &backup.Maker{Records: d.Store.(*store.Store), DataDir: t.TempDir(), LogRoot: filepath.Join(t.TempDir(), "none")}
		d.Backup = m.Write
	})
	f.create("box-1", agboxv1.SandboxState_SANDBOX_STATE_READY)
	got, err := f.receive(t.Context())
	f.must(err)
	b, err := backup.Open(t.Context(), bytes.NewReader(got), int64(len(got)))
	f.must(err)
	if b.Instance != f.store.InstanceID() {
		t.Errorf("instance %s", b.Instance)
	}
}

func TestRefusedBackups(t *testing.T) {
	noRoom := &store.Refusal{Reason: "BACKUP_NO_SPACE", Class: errdefs.ErrUnavailable, Message: "make room"}
	f := newFixture(t, backingUp(func(context.Context, io.Writer, bool) error { return noRoom }))
	_, err := f.receive(t.Context())
	refused(t, err, codes.Unavailable, "BACKUP_NO_SPACE", "make room", nil)
}

// TestBackupsThatNobodyReadsAreBounded: each keeps a copy of the database.
func TestBackupsThatNobodyReadsAreBounded(t *testing.T) {
	began := make(chan struct{})
	f := newFixture(t, backingUp(func(ctx context.Context, _ io.Writer, _ bool) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 4 {
		go func() {
			_, err := f.receive(ctx)
			ended <- err
		}()
		<-began
	}
	_, err := f.receive(t.Context())
	refused(t, err, codes.Unavailable, "BACKUP_BUSY", "other backups are being made; try again when they are done", nil)
	cancel()
	for range 4 {
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v", err)
		}
	}
}

func TestAStoppingDaemonEndsBackups(t *testing.T) {
	began := make(chan struct{})
	f := newFixture(t, backingUp(func(ctx context.Context, _ io.Writer, _ bool) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}))
	ended := make(chan error, 1)
	go func() {
		_, err := f.receive(context.Background())
		ended <- err
	}()
	<-began
	f.must(f.shutdown(t.Context()))
	refused(t, <-ended, codes.Unavailable, "UNAVAILABLE", "agboxd is stopping", nil)
}
