package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
)

// dialTimeout bounds a connect on the loopback, where only a full queue of a listener takes time.
const dialTimeout = 10 * time.Second

// dialPort connects to a port or a Unix socket, and copies bytes in both directions until both have ended.
func dialPort(s *stream) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.result(nil); err != nil {
		return err
	}
	join(s.UnixConn, conn)
	return nil
}

// halfCloser is a connection whose directions end one by one.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// join copies in both directions. The kernel moves the bytes, with splice(2). A direction that breaks ends both.
func join(a, b halfCloser) {
	var both sync.WaitGroup
	both.Add(2)
	one := func(to, from halfCloser) {
		defer both.Done()
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		if err != nil {
			a.Close()
			b.Close()
		}
	}
	go one(a, b)
	go one(b, a)
	both.Wait()
}

func (s *stream) dial() (halfCloser, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	if s.call.Port == 0 {
		conn, err := d.DialContext(ctx, "unix", s.path)
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN) || errors.Is(err, context.DeadlineExceeded) {
			return nil, &channel.Failed{Reason: channel.PortRefused, Message: fmt.Sprintf("nothing accepts connections at %s", s.path)}
		}
		if err != nil {
			return nil, pathError("connect to", s.path, rootError(err))
		}
		return conn.(*net.UnixConn), nil
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(s.call.Port))))
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		if ctx.Err() != nil {
			return nil, &channel.Failed{Reason: channel.PortRefused, Message: fmt.Sprintf("port %d of the sandbox accepts no connection for %v", s.call.Port, dialTimeout)}
		}
	}
	return nil, &channel.Failed{Reason: channel.PortRefused, Message: fmt.Sprintf("nothing listens on port %d of the sandbox", s.call.Port)}
}

// rootError returns the error of the kernel in err, or err.
func rootError(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}
