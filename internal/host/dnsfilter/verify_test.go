package dnsfilter_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/dnsfilter"
)

// serveWeb makes the world serve HTTP at port 8080 and HTTPS at 8443 of all of its addresses, and answer with the host that was asked for.
func (s *site) serveWeb(t *testing.T) {
	t.Helper()
	for port, start := range map[int]func(*httptest.Server){8080: (*httptest.Server).Start, 8443: (*httptest.Server).StartTLS} {
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
		web.Listener.Close()
		err := s.world.Do(func() (err error) {
			web.Listener, err = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		start(web)
		t.Cleanup(web.Close)
	}
}

// get returns what the sandbox reads of a URL at an address that answers in time, or the error.
func (s *site) get(url, addr string, wait time.Duration) string {
	c, err := s.sandbox.Dial("tcp", addr, wait)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(long))
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	transport := &http.Transport{
		Dial:            func(string, string) (net.Conn, error) { return c, nil },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // what is tested is who passes
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body)))
}

// timeout is the error of a dropped packet.
const timeout = "i/o timeout"

func (s *site) gets(t *testing.T, url, addr, want string) {
	t.Helper()
	wait := long
	if want == timeout {
		wait = short
	}
	if got := s.get(url, addr, wait); !strings.Contains(got, want) {
		t.Errorf("%s at %s: %s, want %s", url, addr, got, want)
	}
}

// Allowed and forbidden names share an address, and only the allowed ones are served.
func TestVerifiedNames(t *testing.T) {
	s := newSite(t)
	s.serveWeb(t)
	s.start(t)
	s.names.has("a.example", "a.example. 60 A 1.1.1.1")
	s.names.has("a.example AAAA", "a.example. 60 AAAA 2606:4700:2::1")
	s.names.has("c.example", "c.example. 60 A 1.1.1.3")
	s.verify = true
	s.enforce(t, "internal", "a.example *.w.example c.example:8443 1.1.2.0/24:80/tcp", "1.1.2.9 x.w.example")
	s.gets(t, "https://a.example/", "1.1.1.1:8443", timeout) // its name was not asked for
	s.expect(t, map[string]string{"a.example": "1.1.1.1", "c.example": "1.1.1.3"})
	_ = lookup(t, s.sandbox, "a.example", 28)

	s.gets(t, "https://a.example/", "1.1.1.1:8443", "200 a.example")
	s.gets(t, "http://a.example/", "1.1.1.1:8080", "200 a.example")
	s.gets(t, "http://a.example/", "[2606:4700:2::1]:8080", "200 a.example")
	s.gets(t, "https://y.w.example/", "[2606:4700:2::1]:8443", "200 y.w.example")
	s.gets(t, "https://c.example/", "1.1.1.3:8443", "200 c.example")
	s.gets(t, "https://c.example/", "1.1.1.1:8443", "200 c.example") // of another allowed name, at its port

	s.gets(t, "https://b.example/", "1.1.1.1:8443", "unrecognized name")
	s.gets(t, "https://x.w.example/", "1.1.1.1:8443", "unrecognized name")
	s.gets(t, "https://1.1.1.1/", "1.1.1.1:8443", "unrecognized name")
	s.gets(t, "http://b.example/", "1.1.1.1:8080", "403")
	s.gets(t, "http://b.example/", "[2606:4700:2::1]:8080", "403")
	s.gets(t, "http://c.example/", "1.1.1.1:8080", "403") // not at this port
	s.gets(t, "https://a.example/", "1.1.1.3:8080", timeout)
	s.gets(t, "https://a.example/", "1.1.1.2:8443", timeout)
	s.refused(t, "b.example", dnsfilter.ReasonAsked, 1)
	s.refused(t, "1.1.1.1:8443", dnsfilter.ReasonAsked, 1)
	s.asked(t, "b.example", func(a dnsfilter.Asked) bool { return a.Refused && a.Count == 3 })
	if s.sandbox.Reaches(t, "udp 1.1.1.1:443", short) {
		t.Error("datagrams pass")
	}
	c, err := s.sandbox.Dial("tcp", "1.1.1.1:80", long) // an echo
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "SSH-2.0-x\r\n\r\n")
	if got, err := io.ReadAll(c); bytes.Contains(got, []byte("SSH")) || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("another protocol is served: %q, %v", got, err)
	}
	c.Close()
	s.reaches(t, true, "1.1.2.1:80") // by its address
	s.reaches(t, false, "1.1.2.9:80")

	reached := map[netip.AddrPort]bool{}
	records, err := s.fw.Reached()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		reached[netip.AddrPortFrom(r.Addr, r.Port)] = true
	}
	for _, a := range []string{"1.1.1.1:8443", "[2606:4700:2::1]:8080", "1.1.2.1:80"} {
		if !reached[netip.MustParseAddrPort(a)] {
			t.Errorf("%s is not recorded: %v", a, records)
		}
	}

	s.kill(syscall.SIGKILL)
	s.gets(t, "https://a.example/", "1.1.1.1:8443", "connection refused")
	s.start(t)
	s.enforce(t, "internal", "a.example *.w.example c.example:8443 1.1.2.0/24:80/tcp", "1.1.2.9 x.w.example")
	s.gets(t, "https://a.example/", "1.1.1.1:8443", "200 a.example")
	s.verify = false
	s.enforce(t, "internal", "a.example *.w.example c.example:8443 1.1.2.0/24:80/tcp", "1.1.2.9 x.w.example")
	s.gets(t, "https://b.example/", "1.1.1.1:8443", "200 b.example")
	s.reaches(t, true, "1.1.1.1:80")
}

// A name opens no service of the host, even with an entry for its address at another port.
func TestVerifiedNamesOpenNoHost(t *testing.T) {
	s := newSite(t)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	web.Listener.Close()
	err := s.host.Do(func() (err error) {
		web.Listener, err = net.Listen("tcp", "198.51.100.1:8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	web.Start()
	defer web.Close()
	s.start(t)
	s.names.has("a.example", "a.example. 60 A 198.51.100.1")
	s.verify = true
	s.enforce(t, "internal", "a.example 198.51.100.0/24:443", "")
	s.expect(t, map[string]string{"a.example": "198.51.100.1"})
	s.gets(t, "http://a.example/", "198.51.100.1:8080", "403")
}

// Connections that are passed on have a bound for all sandboxes together, beyond which questions are still answered.
func TestPassedConnectionsAreBounded(t *testing.T) {
	s := newSite(t)
	s.serveWeb(t)
	s.child.Limits.Passed = 1
	s.start(t)
	s.names.has("a.example", "a.example. 60 A 1.1.1.1")
	s.verify = true
	s.enforce(t, "internal", "a.example", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1"})
	one, err := s.sandbox.Dial("tcp", "1.1.1.1:8080", long)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	eventually(t, "the second is refused", func() (bool, error) {
		return !strings.HasPrefix(s.get("http://a.example/", "1.1.1.1:8080", long), "200"), nil
	})
	if got := lookup(t, s.sandbox, "a.example", 1); got != "1.1.1.1" {
		t.Error(got)
	}
	one.Close()
	eventually(t, "there is room again", func() (bool, error) {
		return strings.HasPrefix(s.get("http://a.example/", "1.1.1.1:8080", long), "200"), nil
	})
}
