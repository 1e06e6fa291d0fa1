package nameproxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/nameproxy"
)

// site is a proxy in front of a server, for clients who may ask for a.example.
type site struct {
	addr string // of the proxy

	mu      sync.Mutex
	refused []string
}

func newSite(t *testing.T, server net.Addr) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{addr: l.Addr().String()}
	p := nameproxy.Proxy{
		To: server.(*net.TCPAddr).AddrPort(), Allows: func(name string) bool { return name == "a.example" || strings.HasSuffix(name, ".a.example") },
		Refused: func(name string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refused = append(s.refused, name)
		},
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.Serve(t.Context(), c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return s
}

func (s *site) mustRefuse(t *testing.T, names ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.refused, names) {
		t.Errorf("refused %q, want %q", s.refused, names)
	}
	s.refused = nil
}

// dial returns a connection to the proxy with a deadline.
func (s *site) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %q %s", r.Method, r.Host, r.RequestURI, r.Header.Values("X-Forwarded-For"), body)
}

func TestTLSPassesByItsServerName(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	shake := func(name string) error {
		c := s.dial(t)
		defer c.Close()
		// The certificate is of example.com; what is tested is which server name is sent.
		return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() //nolint:gosec // see above
	}
	for _, name := range []string{"a.example", "A.Example"} {
		if err := shake(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.mustRefuse(t)
	for _, name := range []string{"b.example", "a.example.evil.example", "xa.example", ""} {
		if err := shake(name); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	s.mustRefuse(t, "b.example", "a.example.evil.example", "xa.example", "")

	c := tls.Client(s.dial(t), &tls.Config{ServerName: "a.example", InsecureSkipVerify: true}) //nolint:gosec // see above
	body := strings.Repeat("x", 1<<20)
	req, _ := http.NewRequest(http.MethodPost, "https://a.example/path", strings.NewReader(body))
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(got), body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A hello may come in pieces, or be none.
func TestHelloOfTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	hello := helloOf(t, "a.example")
	c := s.dial(t)
	for i := range hello {
		if _, err := c.Write(hello[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	answer := make([]byte, 6)
	if _, err := io.ReadFull(c, answer); err != nil || answer[0] != 22 || answer[5] != 2 {
		t.Errorf("no hello of the server: %x, %v", answer, err)
	}
	s.mustRefuse(t)
	for _, junk := range [][]byte{
		hello[:20], append([]byte{22, 3, 1, 0xff, 0xff}, bytes.Repeat([]byte{1}, 1<<17)...), append([]byte{22}, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"...),
	} {
		c := s.dial(t)
		_, _ = c.Write(junk) // what the proxy does not read is reset
		_ = c.CloseWrite()
		if got, _ := io.ReadAll(c); len(got) > 0 && got[0] != 21 {
			t.Errorf("%.20x is answered: %.100x", junk, got)
		}
	}
	s.mustRefuse(t, "", "", "")
}

// helloOf returns the first message of a client of TLS.
func helloOf(t *testing.T, name string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}).Handshake()
		theirs.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(ours, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// Each request of a connection names its own host.
func TestHTTPPassesByItsHost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	c := s.dial(t)
	from := bufio.NewReader(c)
	for _, step := range []struct {
		send    string
		code    int
		text    string
		refused []string
	}{
		{"GET /a%2fb//c?x=1;y HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: me\r\n\r\n", 200, `GET a.example /a%2fb//c?x=1;y ["me"] `, nil},
		{"POST / HTTP/1.1\r\nHost: A.example.:8080\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, "POST A.example.:8080 / [] abc", nil},
		{"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", 403, "the network policy of the sandbox does not let this host through\n", []string{"b.example"}},
		{"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 403, "", []string{"b.example"}},
		{"GET http://a.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n", 200, "GET a.example /x [] ", nil},
		{"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", 403, "", []string{"b.example"}},
		{"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 403, "", []string{""}},
		{"GET / HTTP/1.1\r\nHost: \r\n\r\n", 403, "", []string{""}},
		{"GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", 200, "GET a.example /last [] ", nil},
	} {
		if _, err := io.WriteString(c, step.send); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("%q: %v", step.send, err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != step.code || step.text != "" && string(got) != step.text {
			t.Errorf("%q: %d %q, %v", step.send, resp.StatusCode, got, err)
		}
		s.mustRefuse(t, step.refused...)
	}
	if _, err := from.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last request: %v", err)
	}
}

// What servers may read in two ways does not reach them.
func TestAmbiguousHTTPIsNotPassedOn(t *testing.T) {
	var mu sync.Mutex
	var hosts []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		hosts = append(hosts, r.Host)
	}))
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	for _, send := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : b.example\r\nHost: a.example\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-client\r\n",
		"GET / HTTP/1.1\r\nHost: a.example/b.example\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\x00b.example\r\n\r\n",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<18) + "\r\nHost: a.example\r\n\r\n",
	} {
		c := s.dial(t)
		_, _ = io.WriteString(c, send)
		_ = c.CloseWrite()
		_, _ = io.ReadAll(c)
		c.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.ContainsFunc(hosts, func(h string) bool { return h != "a.example" }) {
		t.Errorf("hosts that the server saw: %q", hosts)
	}
}

func TestUpgradedConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	}))
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	c := s.dial(t)
	from := bufio.NewReader(c)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	_, _ = io.WriteString(c, "ping\n")
	if line, err := from.ReadString('\n'); line != "ping\n" {
		t.Errorf("%q, %v", line, err)
	}
	if rest, err := io.ReadAll(from); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestTheEndOfOneWayPasses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hello := helloOf(t, "a.example")
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		got, _ := io.ReadAll(c)
		_, _ = c.Write(got[len(hello):])
	}()
	s := newSite(t, l.Addr())
	c := s.dial(t)
	_, _ = c.Write(append(hello, "after"...))
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "after" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheEndOfTheProxyEndsConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	var mine *net.TCPConn
	t.Run("while it runs", func(t *testing.T) {
		s := newSite(t, server.Listener.Addr())
		var err error
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		mine = c.(*net.TCPConn)
		_, _ = io.WriteString(mine, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	})
	defer mine.Close()
	_ = mine.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(mine); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}
