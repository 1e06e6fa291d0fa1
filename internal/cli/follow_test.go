package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// lockedBuffer can be read while a follower writes.
type lockedBuffer struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	grew chan struct{}
}

func newBuffer() *lockedBuffer { return &lockedBuffer{grew: make(chan struct{}, 1)} }

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.grew <- struct{}{}:
	default:
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *lockedBuffer) await(want string) {
	for b.String() != want {
		<-b.grew
	}
}

func TestFollowPrintsAsItComes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	out := newBuffer()
	f := follower{tails: []*tail{{path: path, out: out}, {path: filepath.Join(dir, "never"), out: io.Discard}}}
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- f.run(t.Context(), ended) }()

	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range 20 {
		line := fmt.Sprintf("line %d\n", i)
		if _, err := log.WriteString(line); err != nil {
			t.Fatal(err)
		}
		want += line
		out.await(want)
	}
	big := strings.Repeat("x", 3*turnBytes+5) // the rest, written just before the end, is not lost
	if _, err := log.WriteString(big); err != nil {
		t.Fatal(err)
	}
	close(ended)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.String() != want+big {
		t.Errorf("got %d bytes, want %d", len(out.String()), len(want+big))
	}
	_ = log.Close()
}

func TestFollowFindsALogWhoseDirectoryIsMadeLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	out := newBuffer()
	f := follower{tails: []*tail{{path: filepath.Join(dir, "log"), out: out}}}
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- f.run(t.Context(), ended) }()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte("hi"), 0o600); err != nil {
		t.Fatal(err)
	}
	out.await("hi")
	close(ended)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The sandbox can write in the directory of its logs, and the reader may be root.
func TestFollowRefusesIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	close(ended)
	device := filepath.Join(dir, "device") // a character device without a driver: opening it says ENXIO
	paths := []string{link, fifo, dir}
	if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(240, 77))); err == nil {
		paths = append(paths, device)
	}
	for _, path := range paths {
		out := newBuffer()
		f := follower{tails: []*tail{{path: path, out: out}}}
		if err := f.run(t.Context(), ended); err == nil || !strings.Contains(err.Error(), "is not a regular file") || out.String() != "" {
			t.Errorf("%s: got %v, printed %q", path, err, out.String())
		}
	}
}

// A process in the sandbox can make a log as large as it likes; ^C still ends the printing.
func TestFollowQuitsInTheMiddleOfAHugeLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<42); err != nil {
		t.Skip(err)
	}
	ended := make(chan struct{})
	close(ended)
	ctx, quit := context.WithCancel(t.Context())
	f := follower{tails: []*tail{{path: path, out: writerFunc(func(p []byte) (int, error) {
		quit()
		return len(p), nil
	})}}}
	if err := f.run(ctx, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
