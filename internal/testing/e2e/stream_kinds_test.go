//go:build docker

package e2e

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/host/naming"
)

// kinds are calls of each kind of stream that needs the live channel. Each calls begun once the stream is under way, moves no bytes until goOn is
// closed, and returns at the end of the stream. sleeper is an exec with a standard input that prints "up".
func kinds(c *client.Client, id, sleeper string, goOn <-chan struct{}) map[string]func(ctx context.Context, begun func()) error {
	slow := func(begun func()) (io.Writer, io.Closer) {
		r, w := io.Pipe()
		go func() {
			if n, _ := r.Read(make([]byte, 1)); n > 0 {
				begun()
				<-goOn
				_, _ = io.Copy(io.Discard, r)
			}
		}()
		return w, r
	}
	stalled := func(begun func()) (io.Reader, io.Closer) {
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write(make([]byte, 1<<10))
			begun()
			<-goOn
			_, _ = io.CopyN(w, zeros{}, 64<<20) // a client notices when it has something to send
			_ = w.Close()                       // as documented, always nil
		}()
		return r, w
	}
	return map[string]func(ctx context.Context, begun func()) error{
		"attach": func(ctx context.Context, begun func()) error {
			out, closer := slow(begun)
			defer closer.Close()
			r, w := io.Pipe()
			defer w.Close()
			end, err := c.Attach(ctx, sleeper, client.AttachOptions{Stdin: r, Stdout: out})
			if err == nil && end.GetErrorCode() != "" {
				err = fmt.Errorf("the exec has ended: %s", end.GetErrorCode())
			}
			return err
		},
		"read a file": func(ctx context.Context, begun func()) error {
			f, err := c.OpenFile(ctx, &agboxv1.ReadFileRequest{SandboxId: id, Path: "/tmp/d/big"})
			if err != nil {
				return err
			}
			defer f.Close()
			if _, err := io.CopyN(io.Discard, f, 1<<20); err != nil {
				return err
			}
			begun()
			<-goOn
			_, err = io.Copy(io.Discard, f)
			return err
		},
		"write a file": func(ctx context.Context, begun func()) error {
			r, closer := stalled(begun)
			defer closer.Close()
			_, err := c.WriteFile(ctx, &agboxv1.WriteFileStart{SandboxId: id, Path: "/tmp/new"}, r)
			return err
		},
		"read an archive": func(ctx context.Context, begun func()) error {
			w, closer := slow(begun)
			defer closer.Close()
			return c.ReadArchive(ctx, &agboxv1.ReadArchiveRequest{SandboxId: id, Path: "/tmp/d"}, w, nil)
		},
		"write an archive": func(ctx context.Context, begun func()) error {
			r, closer := stalled(begun)
			defer closer.Close()
			_, err := c.WriteArchive(ctx, &agboxv1.WriteArchiveStart{SandboxId: id, Path: "/tmp/in", MakeParents: true}, r)
			return err
		},
		"watch": func(ctx context.Context, begun func()) error {
			for _, err := range c.WatchDir(ctx, &agboxv1.WatchDirRequest{SandboxId: id, Path: "/tmp/d"}, begun) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"forward": func(ctx context.Context, begun func()) error {
			conn, err := c.DialSandbox(ctx, id, "tcp", ":7000")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("x"))
			buf := make([]byte, 1)
			if _, err = io.ReadFull(conn, buf); err != nil {
				return err
			}
			begun()
			_, err = conn.Read(buf)
			return err
		},
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// prepareKinds makes what the kinds of streams need.
func (d *daemon) prepareKinds(id, name string) (sleeper string) {
	d.Helper()
	d.sh(id, "mkdir -p /tmp/d; truncate -s 64M /tmp/d/big")
	d.agbox("cp", filepath.Join(binaries, "echo"), name+":/tmp/")
	d.exec(id, "/tmp/echo", "7000")
	return d.withStdin(id, &agboxv1.StdinSpec{}, "sh", "-c", "echo up; cat")
}

func TestAPausedSandboxAnswersEveryKindOfStreamAtOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{})
	d.await(id, ready)
	sleeper := d.prepareKinds(id, "web")
	c := d.connect()
	printed := func() error {
		out := &lockedBuffer{}
		if _, err := c.CopyExecLog(d.ctx(), sleeper, false, 0, false, out); err != nil || out.String() != "up\n" {
			return fmt.Errorf("the log: %q, %w", out.String(), err)
		}
		return nil
	}
	d.eventually("the exec prints", printed)
	d.pauseBox(id)
	d.await(id, paused)
	goOn := make(chan struct{})
	close(goOn)
	for kind, open := range kinds(c, id, sleeper, goOn) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := open(ctx, func() {})
		if client.Reason(err) != "SANDBOX_PAUSED" || !strings.Contains(err.Error(), "is paused; resume it first") {
			t.Errorf("%s: %v", kind, err)
		}
		cancel()
	}
	// What was printed is on this side.
	if err := printed(); err != nil {
		t.Error(err)
	}
	d.remove(id)
}

// Whoever dies in the middle of a stream, its client continues, or fails with an error that says so.
func TestADeathInTheMiddleOfEveryKindOfStream(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"the daemon", "PID 1"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, "", "")
			id := d.named("web", &agboxv1.CreateSpec{})
			d.await(id, ready)
			sleeper := d.prepareKinds(id, "web")
			d.eventually("the server listens", func() error {
				conn, err := d.client().DialSandbox(d.ctx(), id, "tcp", ":7000")
				if err == nil {
					conn.Close()
				}
				return err
			})
			type end struct {
				kind string
				err  error
			}
			killed := make(chan struct{})
			all := kinds(d.connect(), id, sleeper, killed)
			ends := make(chan end, len(all))
			var begun atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for kind, open := range all {
				go func() { ends <- end{kind, open(ctx, func() { begun.Add(1) })} }()
			}
			d.eventually("all streams have begun", func() error {
				if n := begun.Load(); n < int64(len(all)) {
					return fmt.Errorf("%d of %d", n, len(all))
				}
				return nil
			})
			if victim == "PID 1" {
				d.docker("kill", naming.Primary(id))
			} else {
				d.restart()
			}
			close(killed)
			next := func() end {
				select {
				case e := <-ends:
					t.Logf("%s: %v", e.kind, e.err)
					return e
				case <-time.After(patience):
					t.Fatal("some streams have not ended")
					return end{}
				}
			}
			lasts := 0
			if victim == "the daemon" { // attach continues until its exec ends
				lasts = 1
			}
			for range len(all) - lasts {
				e := next()
				code := client.Code(e.err)
				said := e.kind == "attach" && e.err != nil && strings.Contains(e.err.Error(), "EXEC_LOST") && lasts == 0
				continued := e.kind == "read a file" && e.err == nil && lasts == 1
				cut := e.kind == "forward" && e.err != nil // as a connection is
				if !said && !continued && !cut && code != codes.Unavailable && code != codes.FailedPrecondition {
					t.Errorf("%s: %v", e.kind, e.err)
				}
			}
			if lasts == 1 {
				must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: sleeper}))(t)
				if e := next(); e.kind != "attach" || e.err != nil {
					t.Errorf("%s: %v", e.kind, e.err)
				}
			}
		})
	}
}
