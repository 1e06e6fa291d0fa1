package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/testing/certs"
)

// tcpSite is a daemon that serves TLS on loopback.
type tcpSite struct {
	*testing.T
	daemon    *daemon
	conf      config.TCP
	authority *certs.Authority // of both sides
	socket    agboxv1.SandboxServiceClient
	said      *said
}

// said is a log that may be read while it is written.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func serveTCP(t *testing.T, change ...func(*config.TCP)) *tcpSite {
	t.Helper()
	s := &tcpSite{T: t, authority: certs.New(t), said: &said{}}
	s.conf = config.TCP{Listen: "127.0.0.1:0", ClientCA: s.authority.File, Clients: []string{}}
	s.conf.Cert, s.conf.Key = s.authority.Server()
	for _, fn := range change {
		fn(&s.conf)
	}
	site := newSite(t)
	site.Logger = slog.New(slog.NewJSONHandler(s.said, nil))
	s.daemon, s.socket = site.serving(func(c *config.Config) { c.TCP = s.conf })
	return s
}

func (s *tcpSite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *tcpSite) reload(c config.TCP) {
	s.daemon.level = &slog.LevelVar{} // serve sets it
	cfg := *s.daemon.current.Load()
	cfg.TCP = c
	s.daemon.apply(cfg)
}

func (s *tcpSite) addr() string { return s.daemon.tcp.Addr().String() }

// dial returns a client with a certificate, or without one if cert is empty.
func (s *tcpSite) dial(cert, key string, change ...func(*tls.Config)) *client.Client {
	s.Helper()
	conf := &tls.Config{RootCAs: pool(s, s.authority.File)}
	if cert != "" {
		var err error
		conf, err = client.TLSFromFiles(cert, key, s.authority.File)
		s.must(err)
	}
	for _, fn := range change {
		fn(conf)
	}
	c, err := client.DialWith("tcp://"+s.addr(), client.Options{TLS: conf})
	s.must(err)
	s.Cleanup(func() { _ = c.Close() })
	return c
}

func pool(t testing.TB, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	p := x509.NewCertPool()
	if err != nil || !p.AppendCertsFromPEM(text) {
		t.Fatal(file, err)
	}
	return p
}

// pinged reports whether the daemon answers.
func (s *tcpSite) pinged(c *client.Client) bool {
	s.Helper()
	ping, err := c.Ping(s.Context())
	return err == nil && ping.GetDaemon() == "agboxd"
}

func TestWithoutACertificateOfTheAuthorityThereIsNotEvenAPing(t *testing.T) {
	s := serveTCP(t)
	if c := s.dial(s.authority.Issue("alice")); !s.pinged(c) {
		_, err := c.Ping(t.Context())
		t.Fatalf("with one: %v", err)
	}
	other := certs.New(t)
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	forServers := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	for name, tc := range map[string]struct {
		issue func() (cert, key string)
		want  string
	}{
		"no certificate":      {func() (string, string) { return "", "" }, "agboxd requires a client certificate"},
		"another authority":   {func() (string, string) { return other.Issue("alice") }, "agboxd refuses this client's certificate"},
		"expired":             {func() (string, string) { return s.authority.Issue("alice", expired) }, "agboxd refuses this client's certificate"},
		"for servers only":    {func() (string, string) { return s.authority.Issue("alice", forServers) }, "agboxd refuses this client's certificate"},
		"a certificate of no": {func() (string, string) { return s.authority.Issue("") }, "agboxd refuses this client's certificate"},
	} {
		_, err := s.dial(tc.issue()).Ping(t.Context())
		if client.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %s %v", name, client.Code(err), err)
		}
	}

	// below gRPC: not a byte but TLS's own
	cert, key := s.authority.Issue("alice")
	pair, err := tls.LoadX509KeyPair(cert, key)
	s.must(err)
	for name, conf := range map[string]*tls.Config{
		"TLS 1.2":        {RootCAs: pool(t, s.authority.File), Certificates: []tls.Certificate{pair}, MaxVersion: tls.VersionTLS12},
		"no certificate": {RootCAs: pool(t, s.authority.File), NextProtos: []string{"h2"}},
	} {
		conf.ServerName = "127.0.0.1"
		raw, err := net.Dial("tcp", s.addr())
		s.must(err)
		s.must(raw.SetDeadline(time.Now().Add(10 * time.Second)))
		conn := tls.Client(raw, conf)
		n, err := conn.Read(make([]byte, 1))
		if n > 0 || err == nil || !strings.Contains(err.Error(), "remote error: tls") {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		raw.Close()
	}
	raw, err := net.Dial("tcp", s.addr())
	s.must(err)
	defer raw.Close()
	s.must(raw.SetDeadline(time.Now().Add(10 * time.Second)))
	_, err = raw.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	s.must(err)
	answer := make([]byte, 100)
	if n, _ := raw.Read(answer); n > 7 || n > 0 && answer[0] != 21 { // an alert at most
		t.Errorf("plain text gets %q", answer[:n])
	}
}

func TestAClientTrustsOnlyTheDaemonOfItsAuthority(t *testing.T) {
	s := serveTCP(t)
	cert, key := s.authority.Issue("alice")
	conf, err := client.TLSFromFiles(cert, key, certs.New(t).File)
	s.must(err)
	c, err := client.DialWith("tcp://"+s.addr(), client.Options{TLS: conf, Patience: time.Minute})
	s.must(err)
	defer c.Close()
	if _, err := c.Ping(t.Context()); client.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyNamedClientsMayConnect(t *testing.T) {
	s := serveTCP(t, func(c *config.TCP) { c.Clients = []string{"alice", "spiffe://ci"} })
	byURI := func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "ci"}} }
	if !s.pinged(s.dial(s.authority.Issue("alice"))) || !s.pinged(s.dial(s.authority.Issue("", byURI))) {
		t.Error("a named client is refused")
	}
	for _, name := range []string{"bob", "Alice", ""} {
		if s.pinged(s.dial(s.authority.Issue(name))) {
			t.Errorf("%q may connect", name)
		}
	}
}

func TestRequestsAreRecordedWithTheirCaller(t *testing.T) {
	s := serveTCP(t)
	c := s.dial(s.authority.Issue("alice"))
	s.pinged(c)
	_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "abcd", CreateSpec: &agboxv1.CreateSpec{Image: "x", Envs: map[string]string{"A": "secret"}}})
	s.must(err)
	if err := c.StopSandbox(t.Context(), strings.Repeat("n", 1000)); err == nil {
		t.Error("no error")
	}
	_, err = s.socket.DeleteSandbox(t.Context(), &agboxv1.DeleteSandboxRequest{SandboxId: "abcd"})
	s.must(err)
	var lines []string
	for line := range strings.Lines(s.said.String()) {
		var l struct {
			Msg, Request, Caller, Result string
			SandboxID                    string `json:"sandbox_id"`
		}
		s.must(json.Unmarshal([]byte(line), &l))
		if l.Msg == "audit" && l.Request != "" {
			lines = append(lines, strings.Join([]string{l.Request, l.Caller, l.Result, l.SandboxID}, " "))
		}
	}
	self := fmt.Sprint("uid:", os.Getuid())
	want := []string{"CreateSandbox tls:alice OK abcd", "StopSandbox tls:alice NotFound " + strings.Repeat("n", 128), "DeleteSandbox " + self + " OK abcd"}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s", got)
	}
	if strings.Contains(s.said.String(), "secret") {
		t.Error("the log has the value of an env")
	}
}

func TestAReloadReplacesCertificatesAndClosesWhatItNoLongerAdmits(t *testing.T) {
	s := serveTCP(t)
	alice, bob := s.dial(s.authority.Issue("alice")), s.dial(s.authority.Issue("bob"))
	if !s.pinged(alice) || !s.pinged(bob) {
		t.Fatal("no ping")
	}
	events := make(chan error, 1)
	go func() {
		for _, err := range bob.WatchAgents(t.Context(), client.AgentWatchOptions{}) {
			if err != nil {
				events <- err
				return
			}
		}
	}()
	now := s.conf
	now.Clients = []string{"alice"}
	s.reload(now)
	if err := <-events; err == nil {
		t.Error("bob's stream goes on")
	}
	if s.pinged(bob) || !s.pinged(alice) {
		t.Error("bob is admitted, or alice is not")
	}

	// a wrong file changes nothing
	wrong := now
	wrong.Cert = s.authority.File
	s.reload(wrong)
	if !s.pinged(s.dial(s.authority.Issue("alice"))) || !strings.Contains(s.said.String(), "the old ones hold") {
		t.Error("after a wrong reload")
	}

	// another authority for both sides
	next := certs.New(t)
	now.ClientCA = next.File
	now.Cert, now.Key = next.Server()
	s.reload(now)
	if s.pinged(alice) {
		t.Error("a client of the former authority")
	}
	s.authority = next
	if !s.pinged(s.dial(next.Issue("alice"))) {
		t.Error("no client of the new authority")
	}
}

// Clients without a certificate do not use up the connections of others, and those with one are bounded.
func TestSilentClientsKeepNobodyOut(t *testing.T) {
	s := serveTCP(t)
	first := s.dial(s.authority.Issue("alice"))
	if !s.pinged(first) {
		t.Fatal("no ping")
	}
	for range s.daemon.files.Handshakes + 20 {
		raw, err := net.Dial("tcp", s.addr())
		s.must(err)
		defer raw.Close()
	}
	if !s.pinged(s.dial(s.authority.Issue("alice"))) || !s.pinged(first) {
		t.Error("silent clients keep others out")
	}
}

func TestTheExpiryOfTheCertificateIsReported(t *testing.T) {
	s := serveTCP(t)
	if body := readyz(s.daemon); !strings.Contains(body, "[!]tcp: tcp.cert expires on ") {
		t.Errorf("readyz says %q", body)
	}
}

func TestWrongTLSFilesAreReportedBeforeTheStart(t *testing.T) {
	a, file := certs.New(t), homed(t)
	cert, key := a.Server()
	conf := func(cert, key, ca string) {
		t.Helper()
		text := "[tcp]\nlisten = \"127.0.0.1:0\"\ncert = \"" + cert + "\"\nkey = \"" + key + "\"\nclient_ca = \"" + ca + "\"\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, files := range map[string][3]string{
		"no such file":                {cert, "/nowhere", a.File},
		"tcp.client_ca: tcp.listen":   {cert, key, ""},
		"the file has no PEM certif":  {cert, key, key},
		"private key does not match ": {a.File, key, a.File},
	} {
		conf(files[0], files[1], files[2])
		if code, _, errs := outcome("config", "check"); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %q", want, code, errs)
		}
	}
	conf(cert, key, a.File)
	if code, _, errs := outcome("config", "check"); code != exitOK {
		t.Errorf("code %d, %q", code, errs)
	}
}
