package dnsfilter_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/authority"
	"github.com/agbox/agbox/internal/host/dnsfilter"
)

// secureWeb makes the world serve HTTPS at port 8443 of all of its addresses, for every name, and answer with the credentials that it was sent.
// It returns the certificate of its authority.
func (s *site) secureWeb(t *testing.T) (roots []byte) {
	t.Helper()
	ca, err := authority.Derive([]byte("of the world"), "world")
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := s.world.Do(func() (err error) { l, err = net.Listen("tcp", "[::]:8443"); return err }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: long,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %q %q", r.Host, r.Header["Authorization"], r.Header["X-Key"])
		}),
		TLSConfig: &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return ca.For(hello.ServerName) }},
	}
	var all sync.WaitGroup
	all.Go(func() { _ = server.ServeTLS(l, "", "") })
	t.Cleanup(func() { server.Close(); all.Wait() })
	return ca.Certificate()
}

// client returns a client in the sandbox that reaches one address and trusts some authorities. It keeps its connection.
func (s *site) client(t *testing.T, addr string, trusted ...[]byte) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	for _, text := range trusted {
		roots.AppendCertsFromPEM(text)
	}
	transport := &http.Transport{
		Dial:            func(string, string) (net.Conn, error) { return s.sandbox.Dial("tcp", addr, long) },
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: long}
}

func fetch(t *testing.T, c *http.Client, url, want string) {
	t.Helper()
	var got string
	resp, err := c.Get(url)
	if err != nil {
		got = err.Error()
	} else {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got = strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body)))
	}
	if !strings.Contains(got, want) {
		t.Errorf("%s: %s, want %s", url, got, want)
	}
}

// Headers are added to the requests for their hosts, and to no other ones.
func TestInjectedHeaders(t *testing.T) {
	s := newSite(t)
	world := s.secureWeb(t)
	s.child.Roots = string(world)
	s.start(t)
	for _, name := range []string{"api.example", "other.example", "x.corp.example", "x.a.corp.example"} {
		s.names.has(name, name+". 60 A 1.1.1.1")
	}
	s.names.has("api.example AAAA", "api.example. 60 AAAA 2606:4700:2::1")
	s.names.has("inside.example", "inside.example. 60 A 10.0.0.9")
	own, err := authority.Derive([]byte("of the daemon"), "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	header := func(secret, host, text string) dnsfilter.Injected {
		return dnsfilter.Injected{Secret: secret, Host: host, Header: text, Value: filepath.Join(dir, secret)}
	}
	s.inject = &dnsfilter.Inject{Authority: string(own.Encode()), Headers: []dnsfilter.Injected{
		header("k", "api.example:8443", "Authorization: Bearer ${k}"), header("l", "api.example:8443", "X-Key: ${l}"),
		header("l", "*.a.corp.example:8443", "Authorization: narrow ${l}"), header("k", "*.corp.example:8443", "Authorization: wide ${k}"),
		header("l", "x.corp.example:8443", "X-Key: exact ${l}"), header("k", "inside.example:8443", "Authorization: ${k}"),
	}}
	put("k", "value-1\n")
	put("l", "value-2")

	for _, mode := range []string{"internet", "internal"} {
		s.enforce(t, mode, "1.1.2.0/24", "denied.example")
		c, c6 := s.client(t, "1.1.1.1:8443", own.Certificate()), s.client(t, "[2606:4700:2::1]:8443", own.Certificate())
		s.expect(t, map[string]string{"api.example": "1.1.1.1", "x.corp.example": "1.1.1.1", "x.a.corp.example": "1.1.1.1", "inside.example": "NOERROR", "denied.example": "NXDOMAIN"})
		_ = lookup(t, s.sandbox, "api.example", 28)
		fetch(t, c, "https://api.example:8443/", `200 api.example:8443 ["Bearer value-1"] ["value-2"]`)
		fetch(t, c6, "https://api.example:8443/", `200 api.example:8443 ["Bearer value-1"] ["value-2"]`)
		fetch(t, c, "https://x.corp.example:8443/", `200 x.corp.example:8443 ["wide value-1"] ["exact value-2"]`)
		fetch(t, c, "https://x.a.corp.example:8443/", `200 x.a.corp.example:8443 ["narrow value-2"] []`)

		put("k", "value-3") // on a connection that exists
		fetch(t, c, "https://api.example:8443/", `["Bearer value-3"]`)
		put("k", "two\nlines")
		fetch(t, c, "https://api.example:8443/", "502 agbox: the secret k is not added: it is not one line of printable ASCII")
		if err := os.Remove(filepath.Join(dir, "k")); err != nil {
			t.Fatal(err)
		}
		fetch(t, c, "https://api.example:8443/", "502 agbox: the secret k is not added: it cannot be read: no such file or directory")
		put("k", "value-1\n")

		direct := s.client(t, "1.1.1.1:8443", world)
		if mode == "internet" {
			fetch(t, direct, "https://other.example:8443/", "200 other.example:8443 [] []") // as far as the server
		} else {
			fetch(t, direct, "https://other.example:8443/", "unrecognized name")
		}
		fetch(t, direct, "https://api.example:8443/", "unknown authority")
		s.reaches(t, mode == "internet", "1.1.1.1:80") // another port
	}

	s.enforce(t, "internal", "10.0.0.9", "")
	s.expect(t, map[string]string{"inside.example": "10.0.0.9"})
	fetch(t, s.client(t, "10.0.0.9:8443", own.Certificate()), "https://inside.example:8443/", `200 inside.example:8443 ["value-1"] []`)

	// Whoever the policy no longer has headers for gets none, on a connection that exists either.
	s.enforce(t, "internet", "", "")
	s.expect(t, map[string]string{"api.example": "1.1.1.1"})
	c := s.client(t, "1.1.1.1:8443", own.Certificate(), world)
	fetch(t, c, "https://api.example:8443/", `["Bearer value-1"] ["value-2"]`)
	s.inject.Headers = s.inject.Headers[1:]
	s.enforce(t, "internet", "", "")
	fetch(t, c, "https://api.example:8443/", `[] ["value-2"]`)

	// Nor does one reach what the policy no longer lets through.
	s.enforce(t, "internal", "10.0.0.9", "")
	s.expect(t, map[string]string{"inside.example": "10.0.0.9"})
	old := s.client(t, "10.0.0.9:8443", own.Certificate())
	fetch(t, old, "https://inside.example:8443/", `200 inside.example:8443 ["value-1"] []`)
	s.enforce(t, "internal", "", "")
	s.expect(t, map[string]string{"inside.example": "NOERROR"})
	fetch(t, old, "https://inside.example:8443/", "502 agbox: the network policy of the sandbox does not let this host through")
	s.kill(syscall.SIGKILL)
	fetch(t, s.client(t, "1.1.1.1:8443", own.Certificate()), "https://api.example:8443/", "connection refused")
}

// The rest of a connection that is passed on as it is may be of any protocol.
func TestOtherProtocolsAtInjectedPorts(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("api.example", "api.example. 60 A 1.1.1.1")
	own, err := authority.Derive([]byte("of the daemon"), "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	s.inject = &dnsfilter.Inject{Authority: string(own.Encode()), Headers: []dnsfilter.Injected{{Secret: "k", Host: "api.example", Header: "X: ${k}", Value: "/nowhere"}}}
	s.enforce(t, "internet", "", "")
	s.expect(t, map[string]string{"api.example": "1.1.1.1"})
	c, err := s.sandbox.Dial("tcp", "1.1.1.1:443", long) // an echo
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(long))
	const text = "SSH-2.0-x\r\n\r\n"
	got := make([]byte, len(text))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
}

// Requests of a sandbox are refused where there is no room for them.
func TestInjectedRequestsHaveABudget(t *testing.T) {
	s := newSite(t)
	s.child.Roots, s.child.Limits.SandboxInjectedBytes = string(s.secureWeb(t)), 600<<10
	s.start(t)
	s.names.has("api.example", "api.example. 60 A 1.1.1.1")
	own, err := authority.Derive([]byte("of the daemon"), "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	value := filepath.Join(t.TempDir(), "k")
	if err := os.WriteFile(value, []byte("value"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.inject = &dnsfilter.Inject{Authority: string(own.Encode()), Headers: []dnsfilter.Injected{{Secret: "k", Host: "api.example:8443", Header: "X-Key: ${k}", Value: value}}}
	s.enforce(t, "internet", "", "")
	s.expect(t, map[string]string{"api.example": "1.1.1.1"})
	fetch(t, s.client(t, "1.1.1.1:8443", own.Certificate()), "https://api.example:8443/", "502 agbox: too many requests have headers added at once")
}
