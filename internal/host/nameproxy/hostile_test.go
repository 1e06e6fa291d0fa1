package nameproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// raw is a server that records the heads of the requests that reach it, as they are.
func raw(t *testing.T, answer string) (net.Listener, func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen strings.Builder
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				for from := bufio.NewReader(c); ; {
					line, err := from.ReadString('\n')
					mu.Lock()
					seen.WriteString(line)
					mu.Unlock()
					if err != nil {
						return
					}
					if line == "\r\n" {
						if _, err := io.WriteString(c, answer); err != nil {
							return
						}
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l, func() string { mu.Lock(); defer mu.Unlock(); return seen.String() }
}

// Servers find another host in these than net/http does.
func TestHostsThatServersReadInOtherWays(t *testing.T) {
	l, seen := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	for _, send := range []string{
		"GET x:http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", // the rest of an opaque URL is sent on
		"GET http:b.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: b.example:80:x.a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example:b.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: b.example,x.a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: b.example%2fx.a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [b.example]x.a.example\r\n\r\n",
	} {
		s := newSite(t, l.Addr())
		c := s.dial(t)
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%q: %v", send, err)
		}
		resp.Body.Close()
		c.Close()
		if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", send, resp.StatusCode)
		}
	}
	if got := seen(); strings.Contains(got, "b.example") {
		t.Errorf("the server saw %q", got)
	}
}

// A name is what DNS has, whatever the policy makes of it: a server may end it at another character.
func TestNamesOfTLSAreNames(t *testing.T) {
	l, _ := raw(t, "")
	for _, name := range []string{"b.example\x00.a.example", "\x1b[2J.a.example", "b.example:.a.example", "\xff.a.example"} {
		s := newSite(t, l.Addr())
		c := s.dial(t)
		same := strings.Repeat("x", len(name)-len(".a.example")) + ".a.example" // in length: the library sends no such name
		_, _ = io.WriteString(c, strings.Replace(string(helloOf(t, same)), same, name, 1))
		_ = c.CloseWrite()
		if got, _ := io.ReadAll(c); len(got) == 0 || got[0] != 21 {
			t.Errorf("%q is answered: %.100x", name, got)
		}
		s.mustRefuse(t, "")
	}
}

// What follows another upgrade would be requests that no one reads.
func TestUpgradesToOtherProtocolsAreNotAskedFor(t *testing.T) {
	l, seen := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	for _, up := range []string{"h2c", "H2C", "websocket, h2c", "TLS/1.2"} {
		s := newSite(t, l.Addr())
		c := s.dial(t)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: "+up+"\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		c.Close()
	}
	if got := strings.ToLower(seen()); strings.Contains(got, "upgrade") || strings.Contains(got, "settings") {
		t.Errorf("the server saw %q", got)
	}
}

// A connection of a client has one to the server, whatever it calls the server's hosts.
func TestHostsShareTheServersConnection(t *testing.T) {
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	server.Config.ConnState = func(c net.Conn, _ http.ConnState) { mu.Lock(); defer mu.Unlock(); conns[c] = true }
	server.Start()
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	c := s.dial(t)
	from := bufio.NewReader(c)
	for port := range 50 {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a.example:%d\r\n\r\n", port+1)
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("GET a.example:%d / [] ", port+1); string(body) != want {
			t.Errorf("%q, want %q", body, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(conns) != 1 {
		t.Errorf("%d connections to the server", len(conns))
	}
}

// Small fields take many times their size in memory.
func TestFieldsAreBounded(t *testing.T) {
	l, seen := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	for n, want := range map[int]int{200: http.StatusOK, 300: http.StatusRequestHeaderFieldsTooLarge} {
		s := newSite(t, l.Addr())
		c := s.dial(t)
		var head strings.Builder
		for i := range n {
			fmt.Fprintf(&head, "%d:\r\n", i)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\n"+head.String()+"\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		c.Close()
		if resp.StatusCode != want {
			t.Errorf("%d fields: %d", n, resp.StatusCode)
		}
	}
	if n := strings.Count(seen(), "GET"); n != 1 {
		t.Errorf("%d requests reached the server", n)
	}
}

// A server may answer while its client still sends.
func TestBothWaysOfARequestFlowAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		_ = out.EnableFullDuplex()
		_ = out.Flush()
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = out.Flush()
			if err != nil {
				return
			}
		}
	}))
	defer server.Close()
	s := newSite(t, server.Listener.Addr())
	c := s.dial(t)
	from := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n")
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 3 {
		_, _ = io.WriteString(c, "4\r\nping\r\n")
		got := make([]byte, 4)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "ping" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi")
	resp, err = http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != "hi" || err != nil {
		t.Errorf("the next request: %q, %v", got, err)
	}
}

// What a server answers is not changed, and its head has a bound.
func TestAnswersPassAsTheyAre(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>":                                    "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\nContent-Length: 0\r\n\r\n": "HTTP/1.1 502 ",
	} {
		l, _ := raw(t, answer)
		s := newSite(t, l.Addr())
		c := s.dial(t)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
		c.Close()
	}
}

// A server that does not know the name of the handshake in another form serves another host.
func TestTheHostIsTheNameOfTheHandshake(t *testing.T) {
	hosts := make(chan string, 1)
	s := server(t, "a.example", false, func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host })
	c := newDoor(t, s.Listener.Addr(), nil).client(t, true)
	port := fmt.Sprint(s.Listener.Addr().(*net.TCPAddr).Port)
	for send, want := range map[string]string{"A.EXAMPLE.": "a.example", "a.example:": "a.example", "a.Example.:" + port: "a.example:" + port} {
		r := get(t, "https://a.example/")
		r.Host = send
		if resp, body := answerTo(t, c, r); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, body)
		}
		if got := <-hosts; got != want {
			t.Errorf("%s: %s, want %s", send, got, want)
		}
	}
}

// HTTP/2 has no line of a request that a blank could end, and HTTP/1.1 has.
func TestBlanksInURLs(t *testing.T) {
	s := server(t, "a.example", false, func(http.ResponseWriter, *http.Request) { t.Error("a request reaches the server") })
	r := get(t, "https://a.example/")
	r.URL.RawQuery = "x HTTP/1.0"
	if resp, _ := answerTo(t, newDoor(t, s.Listener.Addr(), nil).client(t, true), r); resp.StatusCode != http.StatusBadRequest || resp.Proto != version(true) {
		t.Error(resp.Proto, resp.Status)
	}
}

// A certificate is kept for each name.
func TestLongNamesAreNone(t *testing.T) {
	names := make(chan string, 1)
	s := server(t, "a.example", false, nil)
	d := newDoor(t, s.Listener.Addr(), func(d *door) {
		d.Allows = func(string) bool { t.Error("it is asked for"); return false }
		d.Refused = func(name string) { names <- name }
	})
	if err := d.dial(t, strings.Repeat("x.", 15000)+"a.example").Handshake(); err == nil {
		t.Error("it is served")
	}
	if name := <-names; name != "" {
		t.Errorf("%d bytes", len(name))
	}
}

func TestErrorsDoNotNameTheHostsAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer l.Close()
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	})
	resp, body := answerTo(t, newDoor(t, l.Addr(), nil).client(t, false), get(t, "https://a.example/"))
	if resp.StatusCode != http.StatusBadGateway || !strings.HasSuffix(body, "connection reset by peer\n") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("%s %q", resp.Status, body)
	}
}
