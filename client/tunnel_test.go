package client_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// brokenTunnels end after a part of what the port has to say.
type brokenTunnels struct {
	agboxv1.UnimplementedStreamServiceServer
}

// Tunnel implements agbox.v1.StreamService.
func (brokenTunnels) Tunnel(s agboxv1.StreamService_TunnelServer) error {
	_, err := s.Recv()
	return errors.Join(err,
		s.Send(&agboxv1.TunnelResponse{Response: &agboxv1.TunnelResponse_Connected{Connected: true}}),
		s.Send(&agboxv1.TunnelResponse{Response: &agboxv1.TunnelResponse_Data{Data: []byte("a part")}}),
		away(nil))
}

func brokenTunnel(t *testing.T) *client.Client {
	t.Helper()
	c, serve := dial(t, func(s *grpc.Server) { agboxv1.RegisterStreamServiceServer(s, brokenTunnels{}) })
	serve()
	return c
}

func TestAConnectionThatBreaksDoesNotEndAsIfAllWereRead(t *testing.T) {
	conn, err := brokenTunnel(t).DialSandbox(t.Context(), "s", "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); string(got) != "a part" || !client.IsUnavailable(err) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAForwardThatBreaksIsReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String()) // before it is accepted: a dial may be reset, too
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	forwarded := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			to := &agboxv1.TunnelOpen{SandboxId: "s", Target: &agboxv1.TunnelOpen_Port{Port: 80}}
			err = brokenTunnel(t).Forward(t.Context(), to, conn.(*net.TCPConn))
		}
		forwarded <- err
	}()
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
	if err := <-forwarded; !client.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
}
