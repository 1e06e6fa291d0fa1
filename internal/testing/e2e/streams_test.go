//go:build docker

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// connect returns a client that outlives the daemon.
func (d *daemon) connect() *client.Client {
	d.Helper()
	c := must(client.DialWith(d.home+"/run/agbox/agboxd.sock", client.Options{Patience: time.Minute}))(d)
	d.Cleanup(func() { _ = c.Close() })
	return c
}

// withStdin starts a command with a standard input.
func (d *daemon) withStdin(id string, in *agboxv1.StdinSpec, command ...string) string {
	d.Helper()
	return must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: command, Stdin: in}))(d).GetExecId()
}

// slowly returns a reader that takes a while for size bytes, and their checksum.
func slowly(size int, during time.Duration) (io.Reader, [sha256.Size]byte) {
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data) // it never fails
	r, w := io.Pipe()
	go func() {
		const pieces = 100
		for rest := data; len(rest) > 0; time.Sleep(during / pieces) {
			n := min(len(rest), size/pieces+1)
			if _, err := w.Write(rest[:n]); err != nil {
				return // the reader has given up
			}
			rest = rest[n:]
		}
		_ = w.Close() // as documented, always nil
	}()
	return r, sha256.Sum256(data)
}

func TestStdinAndOutputOverKillsOfTheDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	c := d.connect()
	e := d.withStdin(id, &agboxv1.StdinSpec{}, "sh", "-c", "cat; echo end >&2; exit 7")
	in, want := slowly(24<<20, 4*time.Second)
	got, errOut := sha256.New(), &bytes.Buffer{}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var end *agboxv1.ExecStatus
	var err error
	var attached sync.WaitGroup
	attached.Go(func() { end, err = c.Attach(ctx, e, client.AttachOptions{Stdin: in, Stdout: got, Stderr: errOut}) })
	for range 5 {
		d.killSometime(800 * time.Millisecond)
	}
	attached.Wait()
	if err != nil || end.GetExitCode() != 7 || errOut.String() != "end\n" || !bytes.Equal(got.Sum(nil), want[:]) {
		t.Errorf("%v, %v, stderr %q, checksum equal: %v", end, err, errOut, bytes.Equal(got.Sum(nil), want[:]))
	}
}

// long is for "go test -tags docker -run TestALongStream ./internal/testing/e2e -long".
var long = flag.Bool("long", false, "move gigabytes in the tests of long streams")

// streamBytes returns the size of a long stream, and how long it may take.
func streamBytes(short, full int64) (size int64, patience time.Duration) {
	if *long {
		return full, 30 * time.Minute
	}
	return short, 3 * time.Minute
}

// pseudoRandom is a reader of size bytes that do not repeat soon.
func pseudoRandom(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{2}), size) }

func TestALongStreamOfStandardInput(t *testing.T) {
	t.Parallel()
	size, patience := streamBytes(64<<20, 4e9)
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want := sha256.New()
	cmd := d.connect().Command(ctx, id, "sha256sum")
	cmd.Stdin = io.TeeReader(pseudoRandom(size), want)
	out, err := cmd.Output()
	if got, _, _ := strings.Cut(string(out), " "); err != nil || got != hex.EncodeToString(want.Sum(nil)) {
		t.Errorf("%q, %v instead of %x", out, err, want.Sum(nil))
	}
}

// counted counts what was read of an endless input.
type counted struct{ n atomic.Int64 }

func (c *counted) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// However much input there is for a command that reads none, only the buffers on the way take some of it.
func TestInputThatIsNeverReadIsBounded(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	ctx, cancel := context.WithCancel(t.Context())
	e := d.withStdin(id, &agboxv1.StdinSpec{}, "sleep", "1000")
	c, in, over := d.connect(), &counted{}, make(chan error, 1)
	before := d.cost()
	go func() {
		_, err := c.Attach(ctx, e, client.AttachOptions{Stdin: in})
		over <- err
	}()
	var last int64
	still := 0
	d.eventually("the input stands still", func() error {
		now := in.n.Load()
		if still++; now != last || now == 0 {
			last, still = now, 0
		}
		if still < 20 {
			return fmt.Errorf("%d bytes", now)
		}
		return nil
	})
	// The client's buffer of 1 MiB, and what a pipe holds, 64 KiB.
	if last > 1<<20+64<<10 {
		t.Errorf("%d bytes were taken", last)
	}
	if now := d.cost(); now.memory > before.memory+64<<20 {
		t.Errorf("agboxd has %d MiB, and had %d", now.memory>>20, before.memory>>20)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	must(d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: e}))(t)
	d.ended(e)
	d.remove(id)
}

func TestALongStreamOfOutputBeyondTheLimit(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[artifacts]\nexec_log_max_bytes = \"1MiB\"\n")
	id := d.create(nil)
	d.await(id, ready)
	size, patience := streamBytes(300<<20, 3<<30)
	e := must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{
		SandboxId: id, Command: []string{"sh", "-c", fmt.Sprintf("yes 0123456789abcde | head -c %d", size)}, LiveOutput: true,
	}))(d)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, want := sha256.New(), sha256.New()
	for range size / 16 {
		want.Write([]byte("0123456789abcde\n"))
	}
	gap := func(bool, int64, int64) { t.Error("the reader got a gap") }
	end, err := d.connect().Attach(ctx, e.GetExecId(), client.AttachOptions{Stdout: got, OnGap: gap})
	if err != nil || end.GetState() != finished || end.GetStdoutDroppedBytes() != size-1<<20 || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%v, %v, checksum equal: %v", end, err, bytes.Equal(got.Sum(nil), want.Sum(nil)))
	}
}

func TestStdinEndsAfterItsGraceWithoutAWriter(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	grace := &agboxv1.StdinSpec{WhenGone: "eof", Grace: durationpb.New(2 * time.Second)}
	never := d.withStdin(id, grace, "cat") // no client ever writes
	left := d.withStdin(id, grace, "cat")
	kept := d.withStdin(id, grace, "cat")
	c := d.connect()
	attach := func(e string, detach <-chan struct{}) <-chan error {
		r, w := io.Pipe()
		over := make(chan error, 1)
		go func() {
			_, err := c.Attach(t.Context(), e, client.AttachOptions{Stdin: r, Stdout: &bytes.Buffer{}, Detach: detach})
			over <- err
		}()
		_, _ = w.Write([]byte("x\n"))
		return over
	}
	leave := make(chan struct{})
	over := attach(kept, leave)
	attach(left, nil)
	d.eventually("both have their input", func() error {
		for _, e := range []string{left, kept} {
			path := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: e}))(d).GetExec().GetStdoutLogPath()
			if out, err := os.ReadFile(path); err != nil || string(out) != "x\n" {
				return fmt.Errorf("its output is %q, %w", out, err)
			}
		}
		return nil
	})
	close(leave)
	if err := <-over; !errors.Is(err, client.ErrDetached) {
		t.Errorf("detached: %v", err)
	}
	d.kill() // the writer of left goes with it: the next daemon starts its deadline
	c.Close()
	d.start()
	for _, e := range []string{never, left} {
		if st := d.ended(e); st.GetState() != finished {
			t.Errorf("%v", st)
		}
	}
	if st := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: kept}))(d).GetExec(); st.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("a detached exec is %v", st)
	}
}

// A second client writes behind what the first one has written.
func TestStandardInputOfSeveralClientsInTurn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	c := d.connect()
	e := d.withStdin(id, &agboxv1.StdinSpec{}, "cat")
	r, w := io.Pipe()
	leave, out := make(chan struct{}), &lockedBuffer{}
	over := make(chan error, 1)
	go func() {
		_, err := c.Attach(t.Context(), e, client.AttachOptions{Stdin: r, Stdout: out, Detach: leave})
		over <- err
	}()
	_, _ = w.Write([]byte("of the first client\n"))
	d.eventually("the command has the first input", func() error {
		if out.String() == "" {
			return errors.New("no output")
		}
		return nil
	})
	close(leave)
	if err := <-over; !errors.Is(err, client.ErrDetached) {
		t.Fatalf("detached: %v", err)
	}
	all := &lockedBuffer{}
	end, err := c.Attach(t.Context(), e, client.AttachOptions{Stdin: strings.NewReader("2\n"), Stdout: all, TakeOver: true})
	if want := "of the first client\n2\n"; err != nil || end.GetState() != finished || all.String() != want {
		t.Errorf("%v, %v: %q instead of %q", end, err, all.String(), want)
	}
}

func TestATerminalOverTheDaemonsDeath(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	e := must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{
		SandboxId: id, Command: []string{"sh", "-c", "while read x; do [ $x = end ] && exit 5; stty size; done"},
		Stdin: &agboxv1.StdinSpec{WhenGone: "hangup"}, Terminal: &agboxv1.TerminalSpec{Columns: 90, Rows: 20},
	}))(d).GetExecId()
	r, w := io.Pipe()
	sizes := make(chan client.Size)
	out := &lockedBuffer{}
	type result struct {
		end *agboxv1.ExecStatus
		err error
	}
	over := make(chan result, 1)
	go func() {
		end, err := d.connect().Attach(t.Context(), e, client.AttachOptions{Stdin: r, Stdout: out, Resize: sizes})
		over <- result{end, err}
	}()
	say := func(line, want string) {
		t.Helper()
		_, _ = w.Write([]byte(line + "\n"))
		d.eventually(want, func() error {
			if !strings.Contains(out.String(), want) {
				return errors.New("the terminal shows " + out.String())
			}
			return nil
		})
	}
	say("a", "20 90")
	d.restart()
	sizes <- client.Size{Columns: 70, Rows: 10}
	say("b", "10 70")
	_, _ = w.Write([]byte("end\n"))
	if got := <-over; got.err != nil || got.end.GetExitCode() != 5 {
		t.Errorf("%v", got)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestASignalReachesACommandWithoutStandardInput, whose client only reads until then.
func TestASignalReachesACommandWithoutStandardInput(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(nil)
	d.await(id, ready)
	c, e := d.connect(), d.exec(id, "sh", "-c", "trap 'echo got it; exit 7' USR1; echo up; while :; do sleep 0.05; done")
	signals, out := make(chan int), new(bytes.Buffer)
	var end *agboxv1.ExecStatus
	var err error
	var attached sync.WaitGroup
	attached.Go(func() {
		end, err = c.Attach(d.ctx(), e.GetExecId(), client.AttachOptions{Stdout: out, Signals: signals})
	})
	d.printed(e, 1)
	signals <- int(syscall.SIGUSR1)
	attached.Wait()
	if err != nil || end.GetExitCode() != 7 || out.String() != "up\ngot it\n" {
		t.Errorf("%v, %v, %q", end, err, out)
	}
	d.remove(id)
}
