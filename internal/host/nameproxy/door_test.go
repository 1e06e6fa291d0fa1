package nameproxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/authority"
	"github.com/agbox/agbox/internal/host/nameproxy"
)

const secret = "Bearer s3cr3t"

// door is a proxy in front of a server, which adds the secret to requests for a.example.
type door struct {
	nameproxy.Proxy
	addr    string         // of the proxy
	ca      []byte         // which the clients trust, in PEM
	trusted *x509.CertPool // the same
	conns   sync.WaitGroup // that it serves
	close   func()
}

var inside, outside = mustAuthority("inside"), mustAuthority("outside")

var quiet = log.New(io.Discard, "", 0)

func mustWrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustAuthority(name string) *authority.Authority {
	a, err := authority.Derive([]byte("secret"), name)
	if err != nil {
		panic(err)
	}
	return a
}

func pool(a *authority.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(a.Certificate())
	return p
}

// newDoor returns a door to a server that change may alter before it opens.
func newDoor(t testing.TB, server net.Addr, change func(*door)) *door {
	t.Helper()
	d := &door{ca: inside.Certificate(), trusted: pool(inside), Proxy: nameproxy.Proxy{
		To: server.(*net.TCPAddr).AddrPort(), Roots: pool(outside),
		Allows: func(name string) bool { return strings.HasSuffix(name, "a.example") }, Refused: func(string) {},
		Inject: func(name string) *nameproxy.Injection {
			if name != "a.example" {
				return nil
			}
			return &nameproxy.Injection{
				Certificate: func() (*tls.Certificate, error) { return inside.For(name) },
				Headers:     func() (http.Header, error) { return http.Header{"Authorization": {secret}}, nil },
			}
		},
	}}
	if change != nil {
		change(d)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.addr = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background()) // a fuzz target has its own
	d.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.conns.Go(func() { d.Serve(ctx, c.(*net.TCPConn)) })
		}
	})
	d.close = func() { l.Close(); stop(); d.conns.Wait() }
	t.Cleanup(d.close)
	return d
}

// headers makes a door add others.
func headers(f func() (http.Header, error)) func(*door) {
	return func(d *door) {
		inject := d.Inject
		d.Inject = func(name string) *nameproxy.Injection {
			in := inject(name)
			if in != nil {
				in.Headers = f
			}
			return in
		}
	}
}

// server starts a server of TLS for a name.
func server(t testing.TB, name string, h2 bool, handler http.HandlerFunc, changes ...func(*http.Server)) *httptest.Server {
	t.Helper()
	cert, err := outside.For(name)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS, s.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{*cert}}, h2 //nolint:gosec // a test's
	s.Config.ErrorLog, s.Config.DisableGeneralOptionsHandler = quiet, true
	for _, change := range changes {
		change(s.Config)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// dial returns a connection of TLS to the proxy.
func (d *door) dial(t testing.TB, name string) *tls.Conn {
	t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return tls.Client(c, &tls.Config{ServerName: name, RootCAs: d.trusted, MinVersion: tls.VersionTLS12})
}

// client returns one whose connections all lead to the proxy.
func (d *door) client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	to := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", d.addr)
		},
		TLSClientConfig: &tls.Config{RootCAs: d.trusted, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: h2, DisableCompression: true,
		ExpectContinueTimeout: 20 * time.Second,
	}
	t.Cleanup(to.CloseIdleConnections)
	return &http.Client{Transport: to, Timeout: 20 * time.Second}
}

// reply is an answer of which the body is read.
type reply struct {
	Status, Proto   string
	StatusCode      int
	Header, Trailer http.Header
	ContentLength   int64
}

// answerTo sends a request and returns the answer, which must not have the secret, and its body.
func answerTo(t testing.TB, c *http.Client, r *http.Request) (reply, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprint(resp.Header, resp.Trailer, string(body)); strings.Contains(all, "s3cr3t") {
		t.Errorf("the answer has the secret: %s", all)
	}
	return reply{resp.Status, resp.Proto, resp.StatusCode, resp.Header, resp.Trailer, resp.ContentLength}, string(body)
}

func get(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// versions runs a test with each version of HTTP on either side.
func versions(t *testing.T, test func(t *testing.T, client, server bool)) {
	for _, client := range []bool{false, true} {
		for _, server := range []bool{false, true} {
			t.Run(fmt.Sprintf("client %s server %s", version(client), version(server)), func(t *testing.T) { test(t, client, server) })
		}
	}
}

func version(h2 bool) string {
	if h2 {
		return "HTTP/2.0"
	}
	return "HTTP/1.1"
}
