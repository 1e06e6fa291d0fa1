package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
)

// via is a way to a daemon.
type via interface {
	// dial makes one connection.
	dial(ctx context.Context) (net.Conn, error)
	// remote reports whether to connect may take seconds, or a user's answer.
	remote() bool
	// hopeless reports whether no daemon can answer soon at this host, so that a call does not wait for one.
	hopeless() bool
	// refused reports whether the host refused this client before it ever reached a daemon: the error of its calls is not
	// codes.Unavailable, so that nothing waits for a daemon.
	refused() bool
	// unreachable describes why no daemon answers, and what to do. cause is gRPC's description.
	unreachable(cause string) string
	// options are those of the connection.
	options() []grpc.DialOption
	// close waits for what dial started, after all its connections were closed.
	close()
}

// hostForms are the hosts that parseHost accepts, for errors.
const hostForms = "a socket's path, ssh://[USER@]HOST[:PORT][/SOCKET], or tcp://HOST:PORT"

// viaHost returns the way to a host.
func viaHost(host string, o Options) (via, error) {
	scheme, _, isURL := strings.Cut(host, "://")
	if !isURL || scheme == "unix" {
		return socketVia(SocketPath(host)), nil
	}
	u, err := url.Parse(host)
	if err != nil {
		return nil, badHost(host, "it is not a URL")
	}
	switch {
	case u.Scheme != "ssh" && u.Scheme != "tcp":
		return nil, badHost(host, "write "+hostForms)
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, badHost(host, `it has a "?" or "#"; write `+hostForms)
	case u.Hostname() == "":
		return nil, badHost(host, "it names no host; write "+hostForms)
	case u.Scheme == "ssh":
		return newSSH(host, u, o.NoPrompt)
	}
	return newTLS(host, u, o.TLS)
}

func badHost(host, why string) error { return fmt.Errorf("host %q: %s", host, why) }

// socketVia is the path of a Unix socket.
type socketVia string

func (s socketVia) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", string(s))
}

func (s socketVia) options() []grpc.DialOption {
	return connectWithin(connectTimeout, firstPause, maxPause)
}

func (socketVia) close() {}

func (socketVia) remote() bool { return false }

func (socketVia) refused() bool { return false }

// hopeless reports whether the socket's directory is missing, or access is denied.
func (s socketVia) hopeless() bool {
	info, err := os.Stat(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(string(s)))
		return err != nil
	}
	return err != nil || info.Mode().Type() != fs.ModeSocket
}

func (s socketVia) unreachable(string) string {
	const hint = `is agboxd running? start it with "agboxd" or "systemctl start agboxd"; --host or ` + EnvHost + ` name another host`
	info, err := os.Stat(string(s))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("no agboxd at %s: no such socket; %s", s, hint)
	case errors.Is(err, syscall.EACCES), err == nil && errors.Is(syscall.Access(string(s), accessWrite), syscall.EACCES):
		return fmt.Sprintf("no access to %s: agboxd runs as another user; run this as that user, or join the group of its socket.group", s)
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return fmt.Sprintf("%s is not a socket; --host or %s name another one", s, EnvHost)
	}
	return fmt.Sprintf("agboxd does not answer at %s; %s", s, hint)
}

// accessWrite is W_OK of access(2): what connect(2) needs.
const accessWrite = 2

// DialSocket connects to the socket of a daemon on this host. The error is the cause of the end of ctx, or an *Error that says why there
// is no listener. It is IsUnavailable unless no daemon can start to listen there.
func DialSocket(ctx context.Context, path string) (*net.UnixConn, error) {
	s := socketVia(SocketPath(path))
	conn, err := s.dial(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		e := &Error{Code: codes.Unavailable, Message: s.unreachable("")}
		if s.hopeless() {
			e.Code = codes.Unauthenticated
		}
		return nil, e
	}
	return conn.(*net.UnixConn), nil
}

// Bounds of connections to other hosts. A connection that is silent for keepaliveTime is probed, and counts as dead after keepaliveTimeout.
const (
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 20 * time.Second
)

func connectWithin(timeout, first, longest time.Duration) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: first, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longest},
		MinConnectTimeout: timeout,
	})}
}

func probed(options []grpc.DialOption) []grpc.DialOption {
	return append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
}

// outcome is the result of the last attempt to reach a daemon on another host.
type outcome struct {
	mu      sync.Mutex
	reached bool // at least once
	last    error
}

// note records the result of an attempt.
func (o *outcome) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = err
	o.reached = o.reached || err == nil
}

// hopeless is refused: other failures may pass.
func (o *outcome) hopeless() bool { return o.refused() }

// describe returns why no daemon answers at the host.
func (o *outcome) describe(host, cause string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last != nil {
		cause = o.last.Error()
	}
	return fmt.Sprintf("no agboxd at %s: %s", host, cause)
}

// refusal is an error that does not pass by itself.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func (*outcome) remote() bool { return true }

// refused reports whether the last error is a refusal, and no daemon was ever reached.
func (o *outcome) refused() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, final := errors.AsType[*refusal](o.last)
	return final && !o.reached
}

// begun is a connection whose first byte was read already.
type begun struct {
	net.Conn
	first []byte
}

// begin waits for the first byte from the daemon, whose server speaks first: what refuses this client shows before that. why explains an
// error of the connection. begin closes conn if it fails.
func (o *outcome) begin(ctx context.Context, conn net.Conn, why func(error) error) (net.Conn, error) {
	interrupt := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	b := &begun{conn, make([]byte, 1)}
	_, err := io.ReadFull(conn, b.first)
	switch {
	case !interrupt():
		err = context.Cause(ctx)
	case err != nil:
		err = why(err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return b, nil
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 || len(p) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}
