package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/client"
)

// peer is a daemon's end of one dial-stdio.
type peer struct {
	*testing.T
	socket string
	in     *io.PipeWriter
	out    bytes.Buffer
	conn   net.Conn
	done   chan error
}

func dialled(ctx context.Context, t *testing.T) *peer {
	t.Helper()
	p := &peer{T: t, socket: filepath.Join(t.TempDir(), "s"), done: make(chan error, 1)}
	l, err := net.Listen("unix", p.socket)
	p.must(err)
	t.Cleanup(func() { l.Close() })
	in, w := io.Pipe()
	p.in = w
	t.Cleanup(func() { w.Close() })
	go func() { p.done <- dialStdio(ctx, p.socket, in, &p.out) }()
	p.conn, err = l.Accept()
	p.must(err)
	t.Cleanup(func() { p.conn.Close() })
	return p
}

func (p *peer) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *peer) ended() error {
	p.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(10 * time.Second):
		p.Fatal("it does not end")
		return nil
	}
}

func TestDialStdioHalfCloses(t *testing.T) {
	p := dialled(t.Context(), t)
	_, err := p.in.Write([]byte("question"))
	p.must(err)
	p.must(p.in.Close())
	all, err := io.ReadAll(p.conn) // ends with the half-close
	if p.must(err); string(all) != "question" {
		t.Errorf("the daemon got %q", all)
	}
	_, err = p.conn.Write([]byte("answer"))
	p.must(err)
	p.must(p.conn.Close())
	if err := p.ended(); err != nil || p.out.String() != "answer" {
		t.Errorf("%v, %q", err, p.out.String())
	}
}

func TestDialStdioEndsWithTheDaemonAndWithASignal(t *testing.T) {
	p := dialled(t.Context(), t)
	p.must(p.conn.Close()) // while stdin is open
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p = dialled(ctx, t)
	cancel()
	if err := p.ended(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDialStdioSaysWhyThereIsNoDaemon(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		socket, text string
		code         int
	}{
		{filepath.Join(dir, "none"), "no such socket; is agboxd running?", exitRuntime},
		{"/nowhere/s", "no such socket", client.ExitHopeless},
		{plain, "is not a socket", client.ExitHopeless},
		{"ssh://host", "AGBOX_HOST on this host is not the path of a socket", exitUsage},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"dial-stdio", "--socket", tc.socket}, &out, &errs); code != tc.code || !strings.Contains(errs.String(), tc.text) {
			t.Errorf("%s: code %d, %q", tc.socket, code, errs.String())
		}
	}
}
