package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// ReasonPortRefused is the reason of a tunnel to a port on which nothing listens.
const ReasonPortRefused = "PORT_REFUSED"

// tunnelPiece is the size of a piece of a tunnel's data, in bytes. Each tunnel has one such buffer.
const tunnelPiece = 16 << 10

type tunnelStream = grpc.BidiStreamingClient[agboxv1.TunnelRequest, agboxv1.TunnelResponse]

// openTunnel returns once the sandbox has connected.
func (c *Client) openTunnel(ctx context.Context, to *agboxv1.TunnelOpen) (tunnelStream, context.CancelFunc, error) {
	stream, cancel, err := open(ctx, c, func(ctx context.Context) (tunnelStream, error) { return c.streams.Tunnel(ctx) })
	if err != nil {
		return nil, nil, err
	}
	_ = stream.Send(&agboxv1.TunnelRequest{Request: &agboxv1.TunnelRequest_Open{Open: to}}) // Recv has the error
	if _, err = stream.Recv(); err != nil {
		cancel()
		return nil, nil, ended(ctx, c.fromStatus(err))
	}
	return stream, cancel, nil
}

// HalfCloser is a connection whose directions end one by one, as *net.TCPConn and *net.UnixConn.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// Forward connects conn to a port or a Unix socket in a sandbox, and copies until both directions have ended. It closes conn.
// Errors besides those of the copying: PORT_REFUSED, if nothing listens.
func (c *Client) Forward(ctx context.Context, to *agboxv1.TunnelOpen, conn HalfCloser) error {
	defer conn.Close()
	stream, cancel, err := c.openTunnel(ctx, to)
	if err != nil {
		return err
	}
	return c.join(ctx, stream, cancel, conn, func(error) {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // reset it: the other side must not take a part for the whole
		}
	})
}

// join copies in both directions. The goroutine ends with the connection or the stream, both of which join ends. broken is called before it
// closes a connection that did not end properly.
func (c *Client) join(ctx context.Context, stream tunnelStream, cancel context.CancelFunc, conn HalfCloser, broken func(error)) error {
	up := make(chan error, 1)
	go func() {
		err := sendAll(stream, conn)
		if err != nil {
			cancel()
		}
		up <- err
	}()
	err := receiveAll(stream, conn)
	if err != nil {
		cancel()
	}
	if err == nil {
		if err = <-up; err != nil {
			err = ended(ctx, c.fromStatus(err))
		}
	} else {
		err = ended(ctx, c.fromStatus(err))
		broken(err)
		conn.Close()
		<-up
	}
	cancel()
	return err
}

func sendAll(stream tunnelStream, conn net.Conn) error {
	buf := make([]byte, tunnelPiece)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if stream.Send(&agboxv1.TunnelRequest{Request: &agboxv1.TunnelRequest_Data{Data: buf[:n]}}) != nil {
				return nil // the receiving half has the error
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.CloseSend()
		}
		if err != nil {
			return err
		}
	}
}

func receiveAll(stream tunnelStream, conn HalfCloser) error {
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && resp.GetEof() {
			err = conn.CloseWrite()
			if errors.Is(err, unix.ENOTCONN) { // the other side has left altogether
				err = nil
			}
		} else if err == nil {
			_, err = conn.Write(resp.GetData())
		}
		if err != nil {
			return err
		}
	}
}

// DialSandbox connects to a port or a Unix socket in a READY sandbox. network and address are "tcp" and ":PORT" or "localhost:PORT", or "unix"
// and an absolute path, which the user of the sandbox's execs opens. The connection implements HalfCloser. ctx bounds the dial only. Reads of a
// connection that broke, as at the end of the daemon, end with the reason, not with io.EOF.
func (c *Client) DialSandbox(ctx context.Context, sandboxID, network, address string) (net.Conn, error) {
	to := &agboxv1.TunnelOpen{SandboxId: sandboxID}
	switch network {
	case "tcp", "tcp4", "tcp6":
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("port %q is not a number below 65536", text)
		}
		if ip := net.ParseIP(host); host != "" && host != "localhost" && !ip.IsLoopback() {
			return nil, fmt.Errorf("host %q is not the sandbox's loopback; write localhost:%s", host, text)
		}
		to.Target = &agboxv1.TunnelOpen_Port{Port: uint32(port)}
	case "unix":
		to.Target = &agboxv1.TunnelOpen_UnixPath{UnixPath: address}
	default:
		return nil, net.UnknownNetworkError(network)
	}
	longer, stop := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, stop)
	stream, cancel, err := c.openTunnel(longer, to)
	if !release() && err == nil {
		cancel()
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		return nil, err
	}
	ours, theirs, err := socketpair()
	if err != nil {
		stop()
		return nil, err
	}
	conn := &tunnelConn{UnixConn: theirs}
	go func() { // ends when the caller closes its end, or the sandbox does
		defer stop()
		defer ours.Close()
		_ = c.join(longer, stream, cancel, ours, func(err error) { conn.broken.Store(&err) })
	}()
	return conn, nil
}

// tunnelConn is the caller's end of a tunnel.
type tunnelConn struct {
	*net.UnixConn
	broken atomic.Pointer[error] // set before the other end is closed
}

// Read implements net.Conn.
func (t *tunnelConn) Read(p []byte) (int, error) {
	n, err := t.UnixConn.Read(p)
	if errors.Is(err, io.EOF) {
		if why := t.broken.Load(); why != nil {
			err = *why
		}
	}
	return n, err
}

// socketpair returns two connected Unix sockets: a connection with deadlines and half-close.
func socketpair() (a, b *net.UnixConn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "tunnel")
		conn, connErr := net.FileConn(f)
		f.Close()
		if connErr != nil {
			err = connErr
			continue
		}
		conns[i] = conn.(*net.UnixConn)
	}
	if err != nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}
	return conns[0], conns[1], err
}
