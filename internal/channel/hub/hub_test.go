package hub

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/channel"
)

const box = "box-1"

// fixture is a hub whose main process is this test.
type fixture struct {
	*testing.T
	hub *Hub
	dir string

	mu    sync.Mutex
	drops map[string]int
	main  func() (int, error)
	conns []net.Conn
}

func (f *fixture) setMain(main func() (int, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.main = main
}

func (f *fixture) mainProcess(context.Context, string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.main()
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, dir: t.TempDir(), drops: map[string]int{}, main: func() (int, error) { return os.Getpid(), nil }}
	f.hub = New(Options{
		Dir: func(string) string { return f.dir }, MainProcess: f.mainProcess,
		Dropped: func(reason string) { f.mu.Lock(); defer f.mu.Unlock(); f.drops[reason]++ }, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(f.closeAll)
	t.Cleanup(f.hub.Close)
	f.serve()
	return f
}

func (f *fixture) serve() {
	f.Helper()
	if err := f.hub.Serve(box); err != nil {
		f.Fatal(err)
	}
}

// dial connects as PID 1 does. The hub may drop the connection before it has read the Hello.
func (f *fixture) dial(token string) net.Conn {
	conn, err := net.Dial("unix", filepath.Join(f.dir, channel.SocketName))
	if err != nil {
		f.Error(err)
		conn, _ = net.Pipe()
	}
	_ = channel.Write(conn, channel.Frame{Kind: channel.Hello, Number: channel.Version, Text: token})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, conn)
	return conn
}

func (f *fixture) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
}

// await waits until PID 1 is connected or not.
func (f *fixture) await(connected bool) {
	f.Helper()
	for end := time.Now().Add(10 * time.Second); f.hub.Connected(box) != connected; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("connected is not %v", connected)
		}
	}
}

// pid1 opens the control connection and answers each Open by answer.
func (f *fixture) pid1(answer func(control net.Conn, open channel.Frame)) net.Conn {
	f.Helper()
	control := f.dial("")
	f.await(true)
	go func() {
		for r := channel.NewReader(control); ; {
			open, err := r.Read()
			if err != nil {
				return
			}
			answer(control, open)
		}
	}()
	return control
}

func (f *fixture) dropped(reason string) {
	f.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		n := f.drops[reason]
		f.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("nothing was dropped for %q", reason)
		}
	}
}

func closedByHub(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		t.Errorf("the connection is open: %v", err)
	}
}

func TestAStreamIsAConnectionOfItsOwn(t *testing.T) {
	f := newFixture(t)
	f.pid1(func(_ net.Conn, open channel.Frame) {
		stream := f.dial(open.Text)
		_, _ = stream.Write([]byte("hello " + open.Exec + open.User))
		_ = stream.Close()
	})
	for _, open := range []func() (net.Conn, error){
		func() (net.Conn, error) { return f.hub.OpenExec(t.Context(), box, "e1") },
		func() (net.Conn, error) { return f.hub.Open(t.Context(), box, "u1") },
	} {
		conn, err := open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(conn)
		if err != nil || string(data) != "hello e1" && string(data) != "hello u1" {
			t.Errorf("%q, %v", data, err)
		}
		conn.Close()
		conn.Close() // counted once
	}
	if n := f.hub.end(box).streams; n != 0 {
		t.Errorf("%d streams are counted", n)
	}
}

func TestABurstOfStreamsIsOpened(t *testing.T) {
	f := newFixture(t)
	f.pid1(func(_ net.Conn, open channel.Frame) { f.dial(open.Text) })
	var opening sync.WaitGroup
	for range 4 * maxOpening {
		opening.Go(func() {
			conn, err := f.hub.OpenExec(t.Context(), box, "e1")
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		})
	}
	opening.Wait()
}

func TestOnlyTheMainProcessIsAccepted(t *testing.T) {
	f := newFixture(t)
	f.setMain(func() (int, error) { return os.Getppid(), nil })
	conn := f.dial("")
	closedByHub(t, conn)
	f.dropped(DropPeer)
	f.setMain(func() (int, error) { return 0, errdefs.ErrUnavailable })
	closedByHub(t, f.dial(""))
	if f.hub.Connected(box) {
		t.Error("another process is connected")
	}
}

func TestTheMainProcessIsLookedUpOnce(t *testing.T) {
	f := newFixture(t)
	f.pid1(func(_ net.Conn, open channel.Frame) { f.dial(open.Text) })
	f.setMain(func() (int, error) { return 0, errors.New("the engine hangs") })
	for range 20 { // more than lookups are allowed
		conn, err := f.hub.Open(t.Context(), box, "")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

func TestARefusalHasItsReason(t *testing.T) {
	f := newFixture(t)
	f.pid1(func(control net.Conn, open channel.Frame) {
		_ = channel.Write(control, channel.Frame{Kind: channel.Refuse, Text: open.Text, Data: []byte("no room")})
	})
	_, err := f.hub.Open(t.Context(), box, "")
	var refused *Refused
	if !errors.As(err, &refused) || refused.Message != "no room" {
		t.Errorf("got %v", err)
	}
}

func TestADeathOfPID1FailsWhatWaitsForIt(t *testing.T) {
	f := newFixture(t)
	f.pid1(func(control net.Conn, _ channel.Frame) { control.Close() })
	if _, err := f.hub.Open(t.Context(), box, ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("got %v", err)
	}
	f.await(false)
	f.pid1(func(_ net.Conn, open channel.Frame) { f.dial(open.Text) }) // the next one is accepted
	conn, err := f.hub.Open(t.Context(), box, "")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestANewerControlConnectionReplacesTheOlder(t *testing.T) {
	f := newFixture(t)
	first := f.dial("")
	f.await(true)
	f.dial("")
	closedByHub(t, first)
	f.await(true)
}

func TestWithoutPID1ThereIsNoChannel(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var none *Unavailable
	if _, err := f.hub.Open(ctx, box, ""); !errors.As(err, &none) {
		t.Errorf("got %v", err)
	}
	if _, err := f.hub.Open(t.Context(), "another", ""); !errors.As(err, &none) {
		t.Errorf("got %v", err)
	}
}

func TestBadHellosAreDropped(t *testing.T) {
	f := newFixture(t)
	closedByHub(t, f.dial("an unknown token"))
	f.dropped(DropToken)
	conn, err := net.Dial("unix", filepath.Join(f.dir, channel.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := channel.Write(conn, channel.Frame{Kind: channel.Hello, Number: channel.Version + 1}); err != nil {
		t.Fatal(err)
	}
	closedByHub(t, conn)
	f.dropped(DropHello)
}

func TestAFloodOfSilentConnectionsIsBounded(t *testing.T) {
	f := newFixture(t)
	f.pid1(func(_ net.Conn, open channel.Frame) { f.dial(open.Text) })
	for range maxGreeting + 10 {
		conn, err := net.Dial("unix", filepath.Join(f.dir, channel.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	f.dropped(DropFlood)
}

func TestADirectoryThatIsMadeAgainIsServedAgain(t *testing.T) {
	f := newFixture(t)
	f.dial("")
	f.await(true)
	f.serve() // nothing to do
	f.await(true)
	f.dir = t.TempDir()
	f.serve()
	f.await(false)
	f.dial("")
	f.await(true)
	f.hub.Forget(box)
	f.await(false)
}

func TestCloseEndsEverything(t *testing.T) {
	f := newFixture(t)
	control := f.dial("")
	f.await(true)
	f.hub.Close()
	closedByHub(t, control)
	if err := f.hub.Serve(box); err != nil {
		t.Error(err)
	}
}

func TestMoreRefusalsThanOpensEndTheConnection(t *testing.T) {
	f := newFixture(t)
	control := f.pid1(func(control net.Conn, open channel.Frame) {
		_ = channel.Write(control, channel.Frame{Kind: channel.Refuse, Text: open.Text, Data: []byte("no room")})
	})
	for range 3 {
		var refused *Refused
		if _, err := f.hub.Open(t.Context(), box, ""); !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	}
	_ = channel.Write(control, channel.Frame{Kind: channel.Refuse, Text: "unasked"})
	f.dropped(DropProtocol)
	f.await(false)
}

// A sandbox that connects all the time gets the bound of its debt and no more: the rest waits in the queue of its own socket.
func TestUnaskedConnectionsArePaced(t *testing.T) {
	f := newFixture(t)
	start := time.Now()
	for time.Since(start) < time.Second {
		conn, err := net.Dial("unix", filepath.Join(f.dir, channel.SocketName))
		if err != nil { // the queue is full
			time.Sleep(time.Millisecond)
			continue
		}
		_ = channel.Write(conn, channel.Frame{Kind: channel.Hello, Number: channel.Version, Text: "forged"})
		conn.Close()
	}
	f.mu.Lock()
	total := 0
	for _, n := range f.drops {
		total += n
	}
	f.mu.Unlock()
	// Greetings that are under way when the debt begins are beyond it.
	if most := unaskedBurst + maxGreeting + int(unaskedRate*time.Since(start).Seconds()) + 1; total > most {
		t.Errorf("%d connections were accepted and dropped, %d at most", total, most)
	}
	f.hub.Close() // does not wait for the debt
}
