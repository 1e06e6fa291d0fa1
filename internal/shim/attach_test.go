package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// serveChannel serves the channel of a box, whose init must be running.
func (b *box) serveChannel() *hub.Hub {
	b.Helper()
	h := hub.New(hub.Options{
		Dir: b.dir.ExecDir, MainProcess: func(context.Context, string) (int, error) { return b.cmd.Process.Pid, nil },
		Dropped: func(string) {}, Logger: slog.New(slog.DiscardHandler),
	})
	b.Cleanup(h.Close)
	if err := h.Serve(sandbox); err != nil {
		b.Fatal(err)
	}
	return h
}

// attachment is the daemon's end of a stream to a supervisor.
type testAttachment struct {
	*box
	net.Conn
	r *channel.Reader
}

func (b *box) attachTo(h *hub.Hub, r execjournal.Request, f channel.Frame) (*testAttachment, channel.Frame) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := h.OpenExec(ctx, sandbox, r.ExecID)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	a := &testAttachment{box: b, Conn: conn, r: channel.NewReader(conn)}
	f.Kind = channel.Attach
	a.send(f)
	return a, a.next(channel.Attached)
}

func (a *testAttachment) send(f channel.Frame) {
	a.Helper()
	if err := channel.Write(a.Conn, f); err != nil {
		a.Fatal(err)
	}
}

// next returns the next frame of a kind.
func (a *testAttachment) next(kind channel.Kind) channel.Frame {
	a.Helper()
	for {
		f, err := a.r.Read()
		if err != nil {
			a.Fatalf("waiting for a frame of kind %d: %v", kind, err)
		}
		if f.Kind == kind {
			return f
		}
	}
}

func (b *box) withStdin(script string) execjournal.Request {
	r := b.sh(script)
	r.Stdin = true
	return b.start(r)
}

func TestStdinIsTakenOnceOverManyConnections(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.withStdin("cat")
	want := make([]byte, 700_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte('a' + rng.IntN(26))
	}
	for sent := int64(0); sent < int64(len(want)); {
		a, hello := b.attachTo(h, r, channel.Frame{Stream: 1})
		if hello.Offset > sent {
			t.Fatalf("the supervisor has %d bytes, %d were sent", hello.Offset, sent)
		}
		// Send again from a bit before what was accepted, a random number of pieces, and leave without waiting.
		sent = max(0, hello.Offset-rng.Int64N(1000))
		for range 1 + rng.IntN(6) {
			n := min(1+rng.Int64N(channel.MaxData), int64(len(want))-sent, hello.Number+channel.StdinWindow-sent)
			if n <= 0 {
				break
			}
			a.send(channel.Frame{Kind: channel.Stdin, Offset: sent, Data: want[sent : sent+n]})
			sent += n
		}
		if sent == int64(len(want)) {
			a.send(channel.Frame{Kind: channel.StdinEnd, Offset: sent})
			if j := b.ended(r); j.ExitCode != 0 {
				t.Fatalf("%+v", j)
			}
		}
		a.Close()
		sent = min(sent, int64(len(want))-1) // the next connection tells
		if b.look(r).Journal.State == execjournal.StateEnded {
			break
		}
	}
	if out, _ := b.logs(r); out != string(want) {
		t.Errorf("got %d bytes, want %d", len(out), len(want))
	}
}

func TestAGapInStdinEndsTheConnectionOnly(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.withStdin("cat")
	a, _ := b.attachTo(h, r, channel.Frame{Stream: 1})
	a.send(channel.Frame{Kind: channel.Stdin, Offset: 7, Data: []byte("late")})
	if _, err := a.r.Read(); err == nil {
		t.Error("a gap is accepted")
	}
	a, _ = b.attachTo(h, r, channel.Frame{Stream: 1})
	a.send(channel.Frame{Kind: channel.Stdin, Data: []byte("ok")})
	if ack := a.next(channel.StdinAck); ack.Offset != 2 {
		t.Errorf("acknowledged %d", ack.Offset)
	}
	a.send(channel.Frame{Kind: channel.StdinEnd, Offset: 2})
	b.ended(r)
	if out, _ := b.logs(r); out != "ok" {
		t.Errorf("got %q", out)
	}
}

func TestStdinThatIsNotReadIsBounded(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.withStdin("read line; echo got $line; exec sleep 1000")
	a, _ := b.attachTo(h, r, channel.Frame{Stream: 1})
	piece := bytes.Repeat([]byte("x\n"), channel.MaxData/2)
	_ = a.SetWriteDeadline(time.Now().Add(2 * time.Second))
	var offset int64
	for range 200 { // 12 MiB: the window of the supervisor is smaller, and it ends the connection
		if channel.Write(a.Conn, channel.Frame{Kind: channel.Stdin, Offset: offset, Data: piece}) != nil {
			break
		}
		offset += int64(len(piece))
	}
	if offset > 4<<20 {
		t.Errorf("%d bytes were taken", offset)
	}
	b.until("the first line", func() bool { out, _ := b.logs(r); return out == "got x\n" })
	b.cancel(r)
	b.ended(r)
}

func TestTheClosedMarkerEndsStdin(t *testing.T) {
	b := newBox(t).boot()
	b.serveChannel()
	r := b.withStdin("cat; echo end")
	b.phase(r, execphase.Running)
	if err := b.dir.CloseInbox(sandbox, r.ExecID); err != nil {
		t.Fatal(err)
	}
	b.ended(r)
}

func TestATerminal(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.sh("stty size; read a; stty size; test -t 1 && echo tty; trap 'echo hup; exit 9' HUP; echo ready; while :; do sleep 0.05; done")
	r.Stdin, r.Terminal = true, &execjournal.Terminal{Columns: 100, Rows: 30}
	b.start(r)
	a, hello := b.attachTo(h, r, channel.Frame{Stream: 1, Columns: 90, Rows: 20})
	if hello.Columns == 0 {
		t.Error("the supervisor does not know that it has a terminal")
	}
	a.send(channel.Frame{Kind: channel.Resize, Columns: 70, Rows: 10})
	a.send(channel.Frame{Kind: channel.Stdin, Data: []byte("x\n")})
	b.until("ready", func() bool { out, _ := b.logs(r); return strings.Contains(out, "ready") })
	out, _ := b.logs(r)
	if !strings.Contains(out, "10 70\r\ntty\r\n") {
		t.Errorf("got %q", out)
	}
	if err := b.dir.HangUp(sandbox, r.ExecID); err != nil {
		t.Fatal(err)
	}
	if j := b.ended(r); j.ExitCode != 9 {
		t.Errorf("exit code %d", j.ExitCode)
	}
	if out, _ := b.logs(r); !strings.HasSuffix(out, "hup\r\n") {
		t.Errorf("got %q", out)
	}
}

func TestInterruptOfATerminalReachesItsForeground(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.sh("trap 'echo int; exit 3' INT; echo ready; while :; do sleep 0.05; done")
	r.Stdin, r.Terminal = true, &execjournal.Terminal{}
	b.start(r)
	a, _ := b.attachTo(h, r, channel.Frame{Stream: 1})
	b.until("ready", func() bool { out, _ := b.logs(r); return strings.Contains(out, "ready") })
	a.send(channel.Frame{Kind: channel.Stdin, Data: []byte{3}}) // ^C
	if j := b.ended(r); j.ExitCode != 3 {
		t.Errorf("exit code %d", j.ExitCode)
	}
}

func TestASignalReachesTheProcessGroup(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.withStdin("trap 'exit 4' USR1; echo ready; while :; do sleep 0.05; done")
	a, _ := b.attachTo(h, r, channel.Frame{})
	b.until("ready", func() bool { out, _ := b.logs(r); return out == "ready\n" })
	a.send(channel.Frame{Kind: channel.Signal, Number: int64(unix.SIGUSR1)})
	if j := b.ended(r); j.ExitCode != 4 {
		t.Errorf("exit code %d", j.ExitCode)
	}
}

func TestTheNewestWriterHasStdin(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.withStdin("cat")
	first, _ := b.attachTo(h, r, channel.Frame{Stream: 1})
	first.send(channel.Frame{Kind: channel.Stdin, Data: []byte("one ")})
	first.next(channel.StdinAck)
	second, hello := b.attachTo(h, r, channel.Frame{Stream: 1})
	if hello.Offset != 4 {
		t.Errorf("offset %d", hello.Offset)
	}
	first.next(channel.TakenOver)
	first.send(channel.Frame{Kind: channel.Stdin, Offset: 4, Data: []byte("ignored")})
	second.send(channel.Frame{Kind: channel.Stdin, Offset: 4, Data: []byte("two")})
	second.send(channel.Frame{Kind: channel.StdinEnd, Offset: 7})
	b.ended(r)
	if out, _ := b.logs(r); out != "one two" {
		t.Errorf("got %q", out)
	}
}

// readBeyond reads output beyond the limit and checks that it continues at an offset; -1: at any. It returns the offset of the end.
func (a *testAttachment) readBeyond(at int64, want func(offset int64, n int) []byte) int64 {
	a.Helper()
	for {
		f, err := a.r.Read()
		if errors.Is(err, io.EOF) || err == nil && f.Kind == channel.End {
			return at
		}
		if err != nil {
			a.Fatal(err)
		}
		if f.Kind != channel.Output {
			continue
		}
		if at < 0 {
			at = f.Offset
		}
		if f.Offset != at || !bytes.Equal(f.Data, want(f.Offset, len(f.Data))) {
			a.Fatalf("%d bytes at offset %d, expected other ones at %d", len(f.Data), f.Offset, at)
		}
		at += int64(len(f.Data))
	}
}

func pattern(offset int64, n int) []byte {
	const line = "0123456789abcde\n"
	data := make([]byte, n)
	for i := range data {
		data[i] = line[(offset+int64(i))%int64(len(line))]
	}
	return data
}

func TestOutputBeyondTheLimitGoesToReaders(t *testing.T) {
	for _, action := range []string{execjournal.LogLimitDrop, execjournal.LogLimitKill} {
		t.Run(action, func(t *testing.T) {
			const limit, total = 10_000, 3_000_000
			b := newBox(t).boot()
			h := b.serveChannel()
			r := b.sh(fmt.Sprintf("yes 0123456789abcde | head -c %d", total))
			r.Live, r.LogLimitBytes, r.LogLimitAction = true, limit, action
			b.start(r)
			a, hello := b.attachTo(h, r, channel.Frame{Live: true})
			if hello.Limit != limit {
				t.Errorf("limit %d", hello.Limit)
			}
			if end := a.readBeyond(limit, pattern); end != total {
				t.Errorf("the output ends at %d", end)
			}
			j := b.ended(r)
			if j.ExitCode != 0 || j.LogLimit || j.StdoutDroppedBytes != total-limit {
				t.Errorf("%+v", j)
			}
			out, _ := b.logs(r)
			marker := ""
			if action == execjournal.LogLimitDrop {
				marker = execjournal.DroppedMarker(limit)
			}
			if out != string(pattern(0, limit))+marker {
				t.Errorf("the log has %d bytes", len(out))
			}
		})
	}
}

func TestASlowReaderSlowsTheCommand(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.sh("yes 0123456789abcde | head -c 20000000; echo done >&2")
	r.Live, r.LogLimitBytes, r.LogLimitAction = true, 1000, execjournal.LogLimitDrop
	b.start(r)
	slow, _ := b.attachTo(h, r, channel.Frame{Live: true})
	fast, _ := b.attachTo(h, r, channel.Frame{Live: true})
	read := make(chan int64, 1)
	go func() { read <- fast.readBeyond(-1, pattern) }() // slow may have got the first pieces alone
	time.Sleep(300 * time.Millisecond)                   // silence is no event: the command must not end while slow does not read
	if _, errOut := b.logs(r); errOut != "" {
		t.Error("the command did not wait for its slow reader")
	}
	if end := slow.readBeyond(1000, pattern); end != 20_000_000 {
		t.Errorf("the slow reader got %d bytes", end)
	}
	if end := <-read; end != 20_000_000 {
		t.Errorf("the fast reader's output ends at %d", end)
	}
	b.ended(r)
}

func TestACancelDoesNotWaitForAReader(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.sh("exec yes 0123456789abcde")
	r.Live, r.LogLimitBytes, r.LogLimitAction = true, 1000, execjournal.LogLimitDrop
	b.start(r)
	b.attachTo(h, r, channel.Frame{Live: true}) // and does not read
	b.until("the limit", func() bool { out, _ := b.logs(r); return len(out) > 1000 })
	b.cancel(r)
	if j := b.ended(r); !j.Cancelled {
		t.Errorf("%+v", j)
	}
}

func TestStreamsOfExecsThatAreOverAreRefused(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.start(b.sh("true"))
	b.ended(r)
	var refused *hub.Refused
	conn, err := h.OpenExec(t.Context(), sandbox, r.ExecID)
	if err == nil { // its supervisor was about to exit
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the stream of an exec that is over has data")
		}
	} else if !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
}

func TestAStreamWaitsForTheRequestOfItsExec(t *testing.T) {
	b := newBox(t).boot()
	h := b.serveChannel()
	r := b.sh("cat")
	r.Stdin = true
	opened := make(chan error, 1)
	go func() {
		conn, err := h.OpenExec(context.Background(), sandbox, r.ExecID)
		if err == nil {
			err = channel.Write(conn, channel.Frame{Kind: channel.Attach, Stream: 1})
		}
		if err == nil {
			err = channel.Write(conn, channel.Frame{Kind: channel.StdinEnd})
		}
		opened <- err
	}()
	time.Sleep(50 * time.Millisecond) // either order is right; this is the rarer one
	b.start(r)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	b.ended(r)
}

func TestTheChannelComesBackWithTheNextDaemon(t *testing.T) {
	b := newBox(t).boot()
	first := b.serveChannel()
	r := b.withStdin("cat")
	a, _ := b.attachTo(first, r, channel.Frame{Stream: 1})
	a.send(channel.Frame{Kind: channel.Stdin, Data: []byte("before ")})
	a.next(channel.StdinAck)
	first.Close()
	a.Close()
	second := b.serveChannel()
	a, hello := b.attachTo(second, r, channel.Frame{Stream: 1})
	if hello.Offset != 7 {
		t.Errorf("offset %d", hello.Offset)
	}
	a.send(channel.Frame{Kind: channel.Stdin, Offset: 7, Data: []byte("after")})
	a.send(channel.Frame{Kind: channel.StdinEnd, Offset: 12})
	b.ended(r)
	if out, _ := b.logs(r); out != "before after" {
		t.Errorf("got %q", out)
	}
}
