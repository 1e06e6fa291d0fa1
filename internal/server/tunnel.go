package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/channel"
)

// tunnels serves StreamService.Tunnel.
type tunnels struct {
	*lifecycle
	*workers
}

// tunnelBuffers keeps buffers for tunnels that have data. An idle tunnel has none.
var tunnelBuffers = sync.Pool{New: func() any { return new([agboxv1.PieceBytes]byte) }}

// Tunnel implements agbox.v1.StreamService.
func (t *tunnels) Tunnel(stream grpc.BidiStreamingServer[agboxv1.TunnelRequest, agboxv1.TunnelResponse]) error {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	open := first.GetOpen()
	c := channel.Call{Op: channel.Dial}
	switch target := open.GetTarget().(type) {
	case *agboxv1.TunnelOpen_Port:
		if target.Port == 0 || target.Port > math.MaxUint16 {
			return invalid("port", fmt.Sprintf("port %d is not between 1 and 65535", target.Port))
		}
		c.Port = uint16(target.Port)
	case *agboxv1.TunnelOpen_UnixPath:
		if !path.IsAbs(target.UnixPath) {
			return invalid("unix_path", "unix_path must be absolute")
		}
		c.Path = target.UnixPath
	default:
		return invalid("open", "the first request must be open, with a port or a unix_path")
	}
	return t.whileServing(stream.Context(), func(ctx context.Context) error {
		s, err := t.call(ctx, open.GetSandboxId(), open.GetUser(), c)
		if err != nil {
			return err
		}
		defer s.end()
		if err := s.frames.ReadAnswer(channel.Result, nil); err != nil {
			return s.failed(ctx, err)
		}
		if err := stream.Send(&agboxv1.TunnelResponse{Response: &agboxv1.TunnelResponse_Connected{Connected: true}}); err != nil {
			return err
		}
		up := make(chan error, 1)
		t.goes(func() { up <- s.fromClient(stream) }) // gRPC ends Recv when this handler returns
		return s.tunnel(ctx, stream, up)
	})
}

// tunnel copies to the client until both directions have ended; up receives the end of the other one.
func (s *workerStream) tunnel(ctx context.Context, stream grpc.BidiStreamingServer[agboxv1.TunnelRequest, agboxv1.TunnelResponse], up <-chan error) error {
	if err := s.toClient(stream); err != nil {
		if send, ok := errors.AsType[sendError](err); ok {
			return send.error
		}
		return s.failed(ctx, err)
	}
	select {
	case err := <-up:
		if err != nil {
			if send, ok := errors.AsType[sendError](err); ok {
				return send.error
			}
			return nil // the sandbox takes no more, and has ended its own direction
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (s *workerStream) fromClient(stream grpc.BidiStreamingServer[agboxv1.TunnelRequest, agboxv1.TunnelResponse]) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return s.closeWrite()
		}
		if err != nil {
			return sent(err)
		}
		if _, err := s.Write(req.GetData()); err != nil {
			return err
		}
	}
}

func (s *workerStream) closeWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.Close()
}

func (s *workerStream) toClient(stream grpc.BidiStreamingServer[agboxv1.TunnelRequest, agboxv1.TunnelResponse]) error {
	for {
		buf, n, err := s.readReady()
		if n > 0 {
			err = sent(stream.Send(&agboxv1.TunnelResponse{Response: &agboxv1.TunnelResponse_Data{Data: buf[:n]}}))
		}
		if buf != nil {
			tunnelBuffers.Put(buf)
		}
		if err == io.EOF { //nolint:errorlint // readReady returns it bare
			return sent(stream.Send(&agboxv1.TunnelResponse{Response: &agboxv1.TunnelResponse_Eof{Eof: true}}))
		}
		if err != nil {
			return err
		}
	}
}

// readReady waits until there is data, and only then takes a buffer.
func (s *workerStream) readReady() (buf *[agboxv1.PieceBytes]byte, n int, err error) {
	conn, ok := s.Conn.(*net.UnixConn)
	if !ok {
		buf = tunnelBuffers.Get().(*[agboxv1.PieceBytes]byte)
		n, err = s.Read(buf[:])
		return buf, n, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	rawErr := raw.Read(func(fd uintptr) bool {
		buf = tunnelBuffers.Get().(*[agboxv1.PieceBytes]byte)
		for {
			if n, err = unix.Read(int(fd), buf[:]); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EAGAIN) {
			tunnelBuffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	switch {
	case rawErr != nil:
		return buf, 0, rawErr
	case err != nil:
		return buf, 0, err
	case n == 0:
		return buf, 0, io.EOF
	}
	return buf, n, nil
}
