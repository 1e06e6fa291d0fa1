package hub

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/wait"
)

// end is the daemon's end of one sandbox's channel.
type end struct {
	h         *Hub
	sandboxID string
	l         *net.UnixListener
	inode     uint64
	greeting  chan struct{} // a slot for each connection whose Hello is awaited
	opening   chan struct{} // a slot for each stream that is being opened
	lookups   *rate.Limiter // of the main process, by connections of unknown processes
	unasked   *rate.Limiter // of connections that answer no Open; below zero nothing is accepted

	mu      sync.Mutex
	closed  bool
	known   process // the main process as it was looked up last
	control *control
	arrived chan struct{} // closed when control is set
	waiting map[string]chan answer
	streams int
}

// control is the control connection of one run of PID 1.
type control struct {
	conn  net.Conn
	mu    sync.Mutex   // of writes
	asked atomic.Int64 // Opens that PID 1 may still refuse
}

// answer is what became of an Open.
type answer struct {
	conn net.Conn
	err  error
}

func newEnd(h *Hub, sandboxID string, l *net.UnixListener) *end {
	e := &end{
		h: h, sandboxID: sandboxID, l: l, greeting: make(chan struct{}, maxGreeting),
		opening: make(chan struct{}, maxOpening), lookups: rate.NewLimiter(rate.Every(200*time.Millisecond), 5),
		unasked: rate.NewLimiter(unaskedRate, unaskedBurst), arrived: make(chan struct{}), waiting: map[string]chan answer{},
	}
	e.inode = inodeOf(filepath.Join(h.o.Dir(sandboxID), channel.SocketName))
	return e
}

// tempName is the name of the socket until it listens. PID 1 dials as soon as it sees the final name.
const tempName = "." + channel.SocketName + ".tmp"

// listen replaces the socket in dir. The path of a socket address is short, so the directory is named by its descriptor.
func listen(dir string) (*net.UnixListener, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	if err := unix.Unlinkat(fd, tempName, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, os.NewSyscallError("unlink", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join("/proc/self/fd", itoa(fd), tempName), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the directory may be another by then
	err = os.NewSyscallError("chmod", unix.Fchmodat(fd, tempName, 0o600, 0))
	var owner unix.Stat_t
	if err == nil {
		err = os.NewSyscallError("stat", unix.Fstat(fd, &owner))
	}
	if err == nil && int(owner.Uid) != os.Geteuid() { // the root of a container whose engine remaps users
		err = os.NewSyscallError("chown", unix.Fchownat(fd, tempName, int(owner.Uid), int(owner.Gid), unix.AT_SYMLINK_NOFOLLOW))
	}
	if err == nil {
		err = os.NewSyscallError("rename", unix.Renameat(fd, tempName, fd, channel.SocketName))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (e *end) socketExists(dir string) bool {
	ino := inodeOf(filepath.Join(dir, channel.SocketName))
	return ino != 0 && ino == e.inode
}

// inodeOf returns the inode number of a file; 0 if there is none.
func inodeOf(path string) uint64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Ino
}

// close ends the listener and the control connection.
func (e *end) close() {
	_ = e.l.Close() // it has no state to lose
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.disconnect()
}

// disconnect closes the control connection and fails what waits for it. e.mu is held.
func (e *end) disconnect() {
	if e.control != nil {
		e.control.conn.Close()
		e.control = nil
		e.arrived = make(chan struct{})
	}
	for token, c := range e.waiting {
		c <- answer{err: &Unavailable{SandboxID: e.sandboxID, why: errGone.Error()}}
		delete(e.waiting, token)
	}
}

// accept accepts connections until the listener is closed.
func (e *end) accept() {
	for {
		if debt := -e.unasked.Tokens(); debt > 0 {
			_ = wait.For(e.h.ctx, time.Duration(debt*float64(time.Second)/unaskedRate)) // then Accept ends the loop
		}
		conn, err := e.l.AcceptUnix()
		if err != nil {
			if e.h.ctx.Err() != nil || e.isClosed() {
				return
			}
			_ = wait.For(e.h.ctx, 100*time.Millisecond) // out of descriptors: the sandbox has its bound, so others hold them
			continue
		}
		select {
		case e.greeting <- struct{}{}:
			e.h.wg.Go(func() { e.greet(conn) })
		default:
			e.drop(conn, DropFlood)
		}
	}
}

func (e *end) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *end) drop(conn net.Conn, reason string) {
	conn.Close()
	e.unasked.Reserve()
	e.h.o.Dropped(reason)
}

// greet checks the peer of a connection and reads its Hello.
func (e *end) greet(conn *net.UnixConn) {
	done := sync.OnceFunc(func() { <-e.greeting })
	defer done()
	ctx, cancel := context.WithTimeout(e.h.ctx, helloTimeout)
	defer cancel()
	if !e.trusts(ctx, conn) {
		e.drop(conn, DropPeer)
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	stop := context.AfterFunc(e.h.ctx, func() { conn.Close() })
	r := channel.NewReader(conn)
	hello, err := r.Read()
	if !stop() {
		return
	}
	if err != nil || hello.Kind != channel.Hello || hello.Number != channel.Version {
		e.drop(conn, DropHello)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if hello.Text != "" {
		if !e.deliver(hello.Text, answer{conn: &stream{UnixConn: conn, end: e}}) {
			e.drop(conn, DropToken)
		}
		return
	}
	done()
	e.unasked.Reserve()
	e.run(&control{conn: conn}, r)
}

// run makes c the control connection, and reads it until it breaks.
func (e *end) run(c *control, r *channel.Reader) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		c.conn.Close()
		return
	}
	e.disconnect() // PID 1 has one; an older one is broken
	e.control = c
	close(e.arrived)
	e.mu.Unlock()
	for {
		f, err := r.Read()
		if err == nil && f.Kind == channel.Refuse && c.asked.Add(-1) >= 0 {
			e.deliver(f.Text, answer{err: &Refused{Reason: f.User, Message: string(f.Data)}})
			continue
		}
		if err == nil {
			e.h.o.Dropped(DropProtocol)
		}
		break
	}
	c.conn.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control == c {
		e.disconnect()
	}
}

// deliver hands an answer to the Open with that token, and reports whether it still waits.
func (e *end) deliver(token string, a answer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.waiting[token]
	if !ok {
		return false
	}
	delete(e.waiting, token)
	if a.conn != nil {
		e.streams++
	}
	c <- a // has room for one
	return true
}

// awaitControl returns the control connection, once there is one.
func (e *end) awaitControl(ctx context.Context) (*control, error) {
	ctx, cancel := context.WithTimeout(ctx, controlWait)
	defer cancel()
	for {
		e.mu.Lock()
		c, arrived := e.control, e.arrived
		e.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, &Unavailable{SandboxID: e.sandboxID, why: "its main process has not connected; containers of older releases and runtimes that hide their processes do not"}
		}
	}
}

// expect registers a token. forget must be called; it closes an unused connection.
func (e *end) expect(c *control, token string) (answers <-chan answer, forget func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control != c {
		return nil, nil, &Unavailable{SandboxID: e.sandboxID, why: errGone.Error()}
	}
	if e.streams+len(e.waiting) >= maxStreams {
		return nil, nil, errTooMany
	}
	ch := make(chan answer, 1)
	e.waiting[token] = ch
	return ch, func() {
		e.mu.Lock()
		delete(e.waiting, token)
		e.mu.Unlock()
		select {
		case a := <-ch:
			if a.conn != nil {
				a.conn.Close()
			}
		default:
		}
	}, nil
}

// send writes a frame to PID 1. A PID 1 that does not read, such as a frozen one, fails the send and loses its connection.
func (c *control) send(f channel.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.Add(1)
	_ = c.conn.SetWriteDeadline(time.Now().Add(helloTimeout))
	err := channel.Write(c.conn, f)
	if err != nil {
		c.conn.Close()
	}
	return err
}

// stream is a connection that an Open has returned.
type stream struct {
	*net.UnixConn
	end    *end
	closed sync.Once
}

// Close implements net.Conn.
func (s *stream) Close() error {
	s.closed.Do(func() {
		s.end.mu.Lock()
		defer s.end.mu.Unlock()
		s.end.streams--
	})
	return s.UnixConn.Close()
}
