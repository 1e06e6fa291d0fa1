package nameproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// An upgrade needs HTTP/1.1, also to a server that speaks HTTP/2.
func TestUpgradedConnectionsOfTLS(t *testing.T) {
	s := server(t, "a.example", true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, r.Proto)
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		if r.Header.Get("Authorization") == secret {
			_, _ = rw.WriteString("ready\n")
		}
		_ = rw.Flush()
		_, _ = io.Copy(c, rw)
	})
	d := newDoor(t, s.Listener.Addr(), nil)
	c := d.dial(t, "a.example")
	from := bufio.NewReader(c)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if proto, _ := io.ReadAll(resp.Body); string(proto) != "HTTP/2.0" {
		t.Errorf("the server is asked by %q", proto)
	}
	resp.Body.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, Authorization\r\nUpgrade: WebSocket\r\nAuthorization: mine\r\n\r\n")
	resp, err = http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	if line, err := from.ReadString('\n'); line != "ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	_, _ = io.WriteString(c, "ping\n")
	if line, err := from.ReadString('\n'); line != "ping\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = c.CloseWrite()
	if rest, err := io.ReadAll(from); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestGRPCPasses(t *testing.T) {
	cert, err := outside.For("a.example")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The server answers each message with itself; "fail" ends the stream with an error, and an empty stream is one.
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(cert)), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if md, _ := metadata.FromIncomingContext(stream.Context()); !slices.Equal(md["authorization"], []string{secret}) {
			return status.Error(codes.Unauthenticated, "no secret")
		}
		if method, _ := grpc.MethodFromServerStream(stream); method == "/x/fail" {
			return status.Error(codes.NotFound, "no such method")
		}
		stream.SetTrailer(metadata.Pairs("x-trailer", "1"))
		for {
			m := new(wrapperspb.StringValue)
			if err := stream.RecvMsg(m); err != nil {
				return nil //nolint:nilerr // the client has sent all
			}
			if m.Value == "fail" {
				return status.Error(codes.DataLoss, "as asked")
			}
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		}
	}))
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	d := newDoor(t, l.Addr(), nil)
	byTLS := credentials.NewClientTLSFromCert(d.trusted, "a.example")
	c, err := grpc.NewClient("passthrough:"+d.addr, grpc.WithTransportCredentials(byTLS), grpc.WithAuthority("a.example"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 200 { // an error without a body is one head, however its parts are timed
		err := c.Invoke(t.Context(), "/x/fail", wrapperspb.String("x"), new(wrapperspb.StringValue))
		if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "no such method") {
			t.Fatal(err)
		}
	}
	open := func() grpc.ClientStream {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "mine")
		stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/x/echo")
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stream := open()
	for i := range 3 {
		sent, got := wrapperspb.String(strings.Repeat("x", i<<18)), new(wrapperspb.StringValue)
		if err := stream.SendMsg(sent); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(got); err != nil || got.Value != sent.Value {
			t.Fatalf("%d bytes, %v", len(got.Value), err)
		}
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) || !slices.Equal(stream.Trailer()["x-trailer"], []string{"1"}) {
		t.Errorf("%v, trailers %v", err, stream.Trailer())
	}
	stream = open()
	_ = stream.SendMsg(wrapperspb.String("fail"))
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.DataLoss {
		t.Error(err)
	}
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	s := server(t, "a.example", true, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%v %d", slices.Equal(r.Header["Authorization"], []string{secret}), len(body))
	})
	d := newDoor(t, s.Listener.Addr(), nil)
	dir := t.TempDir()
	ca, big := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "big")
	mustWrite(t, ca, d.ca)
	mustWrite(t, big, make([]byte, 2<<20))
	for _, args := range [][]string{{"--http1.1"}, {"--http2"}} {
		args = append(args, "-sS", "--cacert", ca, "--connect-to", "::"+d.addr, "-H", "Authorization: mine", "--data-binary", "@"+big, "https://a.example/")
		cmd := exec.CommandContext(t.Context(), curl, args...)
		cmd.Env = []string{"HOME=" + dir} // no proxy
		if out, err := cmd.CombinedOutput(); string(out) != "true 2097152" {
			t.Errorf("%s: %q, %v", args[0], out, err)
		}
	}
}
