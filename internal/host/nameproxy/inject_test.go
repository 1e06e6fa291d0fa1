package nameproxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/nameproxy"
)

func TestHeadersAreAddedAndNothingElse(t *testing.T) {
	versions(t, func(t *testing.T, client, h2 bool) {
		type request struct {
			proto, method, host, uri string
			header                   http.Header
		}
		seen := make(chan request, 1)
		s := server(t, "a.example", h2, func(w http.ResponseWriter, r *http.Request) {
			seen <- request{r.Proto, r.Method, r.Host, r.RequestURI, r.Header.Clone()}
			w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
			w.Header()["X-Own"], w.Header()["Content-Encoding"] = []string{"1", "2"}, []string{"gzip"}
			w.Header()["Alt-Svc"] = []string{`h3=":443"`}
			w.Header().Set("Content-Length", "7")
			_, _ = w.Write([]byte("<html>\n"))
		})
		d := newDoor(t, s.Listener.Addr(), nil)
		r := get(t, "https://A.Example/a%2fb//c?x=1;y")
		r.Header = http.Header{"User-Agent": nil, "Authorization": {"mine", "more"}, "X_Own": {"a"}, "X-Forwarded-For": {"me"}, "Accept-Encoding": {"br"}}
		resp, body := answerTo(t, d.client(t, client), r)
		if resp.Proto != version(client) || body != "<html>\n" || resp.ContentLength != 7 {
			t.Errorf("%s %s %q, length %d", resp.Proto, resp.Status, body, resp.ContentLength)
		}
		if want := (http.Header{"X-Own": {"1", "2"}, "Content-Encoding": {"gzip"}, "Content-Length": {"7"}}); !maps.EqualFunc(resp.Header, want, slices.Equal) {
			t.Errorf("the answer's headers are %q, want %q", resp.Header, want)
		}
		got := <-seen
		if got.proto != version(h2) || got.method != "GET" || got.host != "a.example" || got.uri != "/a%2fb//c?x=1;y" {
			t.Errorf("the server has %+v", got)
		}
		want := http.Header{"Authorization": {secret}, "X_own": {"a"}, "X-Forwarded-For": {"me"}, "Accept-Encoding": {"br"}}
		if !maps.EqualFunc(got.header, want, slices.Equal) {
			t.Errorf("the server has headers %q, want %q", got.header, want)
		}
	})
}

func TestMethodsAndBodiesPass(t *testing.T) {
	versions(t, func(t *testing.T, client, h2 bool) {
		s := server(t, "a.example", h2, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/none":
				w.WriteHeader(http.StatusNoContent)
			case "/same":
				w.Header().Set("ETag", `"x"`)
				w.WriteHeader(http.StatusNotModified)
			case "/hints":
				w.Header().Set("Link", "</x>")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header()["Date"], w.Header()["Content-Type"], w.Header()["Link"] = nil, nil, nil
				_, _ = w.Write([]byte("<html>"))
			case "/head":
				w.Header().Set("Content-Length", "1000000")
			case "/refuse":
				w.WriteHeader(http.StatusUnauthorized)
			case "/ends":
				_, _ = w.Write(make([]byte, 1<<16))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			case "/trailers":
				w.Header().Set("Trailer", "X-Said")
				_ = http.NewResponseController(w).EnableFullDuplex()
				_ = http.NewResponseController(w).Flush() // without a length, for which HTTP/1.1 has no trailers
				_, _ = io.Copy(w, r.Body)
				w.Header().Set("X-Said", fmt.Sprint(r.Trailer))
				w.Header().Set(http.TrailerPrefix+"X-Unsaid", "late")
			default:
				if r.ContentLength >= 0 {
					w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
				}
				_ = http.NewResponseController(w).EnableFullDuplex()
				_, _ = io.Copy(w, r.Body)
			}
		})
		d := newDoor(t, s.Listener.Addr(), nil)
		c := d.client(t, client)
		for path, code := range map[string]int{"/none": 204, "/same": 304, "/hints": 200, "/head": 200, "/": 200} {
			r := get(t, "https://a.example"+path)
			if path == "/head" {
				r.Method = http.MethodHead
			}
			hints := ""
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints = fmt.Sprint(code, h)
				return nil
			}}))
			resp, body := answerTo(t, c, r)
			if resp.StatusCode != code {
				t.Errorf("%s: %s %q", path, resp.Status, body)
			}
			switch path {
			case "/head":
				if resp.ContentLength != 1000000 {
					t.Errorf("HEAD: length %d", resp.ContentLength)
				}
			case "/hints":
				if hints != "103 map[Link:[</x>]]" || body != "<html>" || len(resp.Header["Date"])+len(resp.Header["Content-Type"]) > 0 {
					t.Errorf("after hints %q: %q %q", hints, resp.Header, body)
				}
			}
		}
		for _, known := range []bool{true, false} {
			sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
			r := get(t, "https://a.example/echo")
			r.Method, r.Body = http.MethodPost, io.NopCloser(bytes.NewReader(sent))
			if known {
				r.ContentLength = int64(len(sent))
			}
			r.Header.Set("Expect", "100-continue")
			if resp, body := answerTo(t, c, r); body != string(sent) || resp.ContentLength != map[bool]int64{true: int64(len(sent)), false: -1}[known] {
				t.Errorf("%d bytes, length %d", len(body), resp.ContentLength)
			}
		}
		r := get(t, "https://a.example/trailers")
		r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader("body"))
		r.Trailer = http.Header{"X-Sent": {"mine"}}
		if resp, body := answerTo(t, c, r); body != "body" || resp.Trailer.Get("X-Said") != "map[]" || resp.Trailer.Get("X-Unsaid") != "late" {
			t.Errorf("%q, trailers %q", body, resp.Trailer)
		}
		r = get(t, "https://a.example/refuse")
		r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(neverRead{t}), 10
		r.Header.Set("Expect", "100-continue")
		if !client { // of HTTP/2, the proxy takes the body without the server's word
			if resp, _ := answerTo(t, c, r); resp.StatusCode != http.StatusUnauthorized {
				t.Error(resp.Status)
			}
		}
		resp, err := c.Do(get(t, "https://a.example/ends"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("an answer that breaks off is complete after %d bytes", n)
		}
	})
}

type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("the body is sent")
	return 0, io.EOF
}

// Whatever a client sends, a server reads one value.
func TestClientsCannotTouchAHeader(t *testing.T) {
	seen := make(chan http.Header, 1)
	s := server(t, "a.example", false, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := r.Header.Clone()
		maps.Copy(h, r.Trailer)
		seen <- h
	})
	d := newDoor(t, s.Listener.Addr(), headers(func() (http.Header, error) {
		return http.Header{"Authorization": {secret}, "X-Api-Key": {"k3y"}}, nil
	}))
	for send, code := range map[string]int{
		"Authorization: mine\r\nauthorization: mine\r\nAUTHORIZATION: mine\r\n":          200,
		"Connection: authorization, x-api-key, Authorization\r\nAuthorization: mine\r\n": 200,
		"Connection: close, Authorization\r\n":                                           200,
		"Connection: Upgrade, authorization\r\nUpgrade: websocket\r\n":                   200,
		"X_Api_Key: mine\r\nx-api_key: mine\r\n":                                         200,
		"Authorization : mine\r\n":                                                       400,
		" Authorization: mine\r\n":                                                       400,
		"X: y\r\n Authorization: mine\r\n":                                               200,
		"X: y\rAuthorization: mine\r\n":                                                  400,
		"X: y\nAuthorization: mine\r\n":                                                  200,
		"Author\x00ization: mine\r\n":                                                    400,
		"Transfer-Encoding: chunked\r\nTrailer: Authorization, X_Api_Key\r\n\r\n0\r\nAuthorization: mine\r\nX_Api_Key: mine\r\n": 200,
		"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\nAuthorization: mine\r\n":                                           200,
	} {
		c := d.dial(t, "a.example")
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.example\r\n"+send+"\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%q: %v", send, err)
		}
		resp.Body.Close()
		c.Close()
		if resp.StatusCode != code {
			t.Errorf("%q: %s", send, resp.Status)
		}
		if code != http.StatusOK {
			continue
		}
		h := <-seen
		n := 0
		for name := range h {
			if name = strings.ToLower(strings.ReplaceAll(name, "_", "-")); name == "authorization" || name == "x-api-key" {
				n++
			}
		}
		if n != 2 || !slices.Equal(h["Authorization"], []string{secret}) || !slices.Equal(h["X-Api-Key"], []string{"k3y"}) {
			t.Errorf("%q: the server has %q", send, h)
		}
	}
}

func TestRequestsForOthersAreNotPassedOn(t *testing.T) {
	var requests atomic.Int32
	s := server(t, "a.example", true, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	d := newDoor(t, s.Listener.Addr(), nil)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	for send, code := range map[string]int{
		"GET / HTTP/1.1\r\nHost: b.example\r\n":                                          421,
		"GET / HTTP/1.1\r\nHost: x.a.example\r\n":                                        421, // which the policy allows
		"GET / HTTP/1.1\r\nHost: a.example:1\r\n":                                        421,
		"GET / HTTP/1.1\r\nHost: \r\n":                                                   421,
		"GET / HTTP/1.1\r\nHost: a.example:80:b.example\r\n":                             421,
		"GET / HTTP/1.1\r\nHost: a.example@b.example\r\n":                                400,
		"GET / HTTP/1.1\r\nHost: b.example#a.example\r\n":                                400,
		"GET / HTTP/1.1\r\nHost: [::1]\r\n":                                              421,
		"GET / HTTP/1.0\r\n":                                                             421,
		"GET https://b.example/ HTTP/1.1\r\nHost: a.example\r\n":                         421,
		"GET x:https://b.example/ HTTP/1.1\r\nHost: a.example\r\n":                       400,
		"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n":                       400,
		"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n":                          405,
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n":                          405,
		"TRACE / HTTP/1.1\r\nHost: a.example\r\n":                                        405,
		"Trace / HTTP/1.1\r\nHost: a.example\r\n":                                        405,
		"TRACK / HTTP/1.1\r\nHost: a.example\r\n":                                        405,
		"PRI * HTTP/2.0\r\n":                                                             421,
		"GET / HTTP/1.1\r\nHost: a.example\r\nX: " + strings.Repeat("x", 1<<16) + "\r\n": 431,
		fmt.Sprintf("GET / HTTP/1.1\r\nHost: A.example.:%d\r\n", port):                   200,
		"GET https://a.example/ HTTP/1.1\r\nHost: b.example\r\n":                         200,
		"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n":                                      200,
	} {
		requests.Store(0)
		c := d.dial(t, "A.example")
		if _, err := io.WriteString(c, send+"\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%.100q: %v", send, err)
			continue
		}
		resp.Body.Close()
		c.Close()
		if resp.StatusCode != code || requests.Load() > 0 != (code == 200) {
			t.Errorf("%.100q: %s, %d requests", send, resp.Status, requests.Load())
		}
	}

	c := d.client(t, true)
	requests.Store(0)
	for name, code := range map[string]int{"b.example": 421, "a.example:1": 421, "x.a.example": 421, "A.EXAMPLE.": 200} {
		r := get(t, "https://a.example/")
		r.Host = name
		if resp, _ := answerTo(t, c, r); resp.StatusCode != code || resp.Proto != version(true) {
			t.Errorf("%s: %s %s", name, resp.Proto, resp.Status)
		}
	}
	for _, method := range []string{http.MethodTrace, http.MethodConnect} {
		r := get(t, "https://a.example/")
		r.Method, r.Host = method, "a.example"
		if resp, _ := answerTo(t, c, r); resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	for n, code := range map[int]int{200: 200, 300: 431} {
		r := get(t, "https://a.example/")
		for i := range n {
			r.Header.Set(fmt.Sprintf("x-%d", i), "")
		}
		if resp, _ := answerTo(t, c, r); resp.StatusCode != code {
			t.Errorf("%d fields: %s", n, resp.Status)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests reached the server", n)
	}
}

func TestWhyARequestIsNotPassedOn(t *testing.T) {
	var requests atomic.Int32
	count := func(http.ResponseWriter, *http.Request) { requests.Add(1) }
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	junk, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer junk.Close()
	all.Go(func() {
		for {
			c, err := junk.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 ready\r\n")
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	})
	const invalid = "agbox: the certificate of a.example is not valid: x509: "
	valid, other := server(t, "a.example", true, count).Listener.Addr(), server(t, "b.example", true, count).Listener.Addr()
	none := func() (http.Header, error) { return nil, errors.New("the secret github does not exist") }
	lines := func() (http.Header, error) { return http.Header{"Authorization": {secret + "\r\nX: y"}}, nil }
	for _, row := range []struct {
		what   string
		server net.Addr
		change func(*door)
		want   string
	}{
		{"a certificate for another name", other, nil, invalid + "certificate is valid for b.example, not a.example\n"},
		{"an unknown authority", valid, func(d *door) { d.Roots = nil }, invalid + "certificate signed by unknown authority\n"},
		{"the sandbox's authority", valid, func(d *door) { d.Roots = d.trusted }, invalid + "certificate signed by unknown authority\n"},
		{"no server", closed.Addr(), nil, "connection refused\n"},
		{"no TLS", junk.Addr(), nil, "tls: first record does not look like a TLS handshake\n"},
		{"no headers", valid, headers(none), "agbox: the secret github does not exist\n"},
		{"a value that is none", valid, headers(lines), "\"Authorization\"\n"},
	} {
		d := newDoor(t, row.server, row.change)
		for _, h2 := range []bool{false, true} {
			resp, body := answerTo(t, d.client(t, h2), get(t, "https://a.example/"))
			if resp.StatusCode != http.StatusBadGateway || !strings.HasPrefix(body, "agbox: ") || !strings.HasSuffix(body, row.want) || strings.Count(body, "\n") != 1 {
				t.Errorf("%s: %s %q", row.what, resp.Status, body)
			}
		}
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("%d requests reached a server", n)
	}
}

// A server is not asked before the client has agreed to the certificate.
func TestClientsThatDoNotTrustTheAuthority(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := newDoor(t, l.Addr(), func(d *door) { d.trusted = pool(outside) })
	for _, h2 := range []bool{false, true} {
		resp, err := d.client(t, h2).Do(get(t, "https://a.example/"))
		if err == nil {
			resp.Body.Close()
		}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
			t.Error(err)
		}
	}
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(helloOf(t, "a.example"))
	c.Close()
	d.close()
	mine, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.RemoteAddr().String() != mine.LocalAddr().String() {
		t.Error("the server is asked")
	}
}

// Names without headers pass as they are, and a policy's refusal comes first.
func TestOtherNamesOfTLSAreNotDecrypted(t *testing.T) {
	s := server(t, "x.a.example", false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Header["Authorization"]) })
	for _, opaque := range []bool{false, true} {
		d := newDoor(t, s.Listener.Addr(), func(d *door) { d.trusted, d.Opaque = pool(outside), opaque })
		if _, body := answerTo(t, d.client(t, false), get(t, "https://x.a.example/")); body != "[]" {
			t.Errorf("the server has %s", body)
		}
	}
	d := newDoor(t, s.Listener.Addr(), func(d *door) { d.Allows = func(string) bool { return false } })
	if err := d.dial(t, "a.example").Handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Error(err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Header["Authorization"]) }))
	defer plain.Close()
	for _, opaque := range []bool{false, true} {
		d := newDoor(t, plain.Listener.Addr(), func(d *door) { d.Opaque = opaque })
		if resp, body := answerTo(t, d.client(t, false), get(t, "http://a.example/")); resp.StatusCode != http.StatusOK || body != "[]" {
			t.Errorf("by plain HTTP: %s %s", resp.Status, body)
		}
	}
}

func TestOpaqueConnectionsPassAsTheyAre(t *testing.T) {
	patience := *nameproxy.HelloPatience
	*nameproxy.HelloPatience = 50 * time.Millisecond
	t.Cleanup(func() { *nameproxy.HelloPatience = patience }) // after that of the door
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, "220 ready\r\n")
				_, _ = io.Copy(c, c)
			})
		}
	})
	d := newDoor(t, l.Addr(), func(d *door) {
		d.Opaque = true
		d.Allows = func(string) bool { t.Error("a name is asked for"); return false }
	})
	hello := string(helloOf(t, "b.example"))
	for _, send := range []string{
		"", "E", "EHLO x\r\n", "\x16", "\x16\x03\x01\xff", "\x16 is no TLS", hello, hello[:30], strings.Replace(hello, "b.example", "b\x00xample", 1),
		"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", "\x16\x03\x01\x40\x00\x01" + strings.Repeat("\xff", 200<<10),
	} {
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		all.Go(func() { _, _ = io.WriteString(c, send) })
		got := make([]byte, len("220 ready\r\n"+send))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "220 ready\r\n"+send {
			t.Errorf("%.50q: %.100q, %v", send, got, err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
			t.Errorf("%.50q: then %.100q, %v", send, rest, err)
		}
		c.Close()
	}
}

// FuzzInjection sends what it likes by TLS.
func FuzzInjection(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: mine\r\nConnection: authorization\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n1\r\nx\r\n0\r\nAuthorization: mine\r\n\r\n",
		"GET https://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: Upgrade, Authorization\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
	} {
		f.Add(seed)
	}
	bad := make(chan string, 100)
	s := server(f, "a.example", false, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		host, err := url.Parse("https://" + r.Host)
		if err != nil || !strings.EqualFold(strings.TrimSuffix(host.Hostname(), "."), "a.example") ||
			!slices.Equal(r.Header["Authorization"], []string{secret}) || r.Trailer["Authorization"] != nil {
			bad <- fmt.Sprintf("%s %q %q", r.Host, r.Header, r.Trailer)
		}
	})
	d := newDoor(f, s.Listener.Addr(), nil)
	f.Fuzz(func(t *testing.T, send string) {
		c := d.dial(t, "a.example")
		defer c.Close()
		_, _ = io.WriteString(c, send)
		_ = c.CloseWrite()
		if got, _ := io.ReadAll(c); bytes.Contains(got, []byte("s3cr3t")) {
			t.Errorf("the answer is %q", got)
		}
		select {
		case what := <-bad:
			t.Errorf("the server has %s", what)
		default:
		}
	})
}
