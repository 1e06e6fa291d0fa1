package mtls_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/server/connlimit"
	"github.com/agbox/agbox/internal/server/mtls"
	"github.com/agbox/agbox/internal/testing/certs"
)

// site is a listener whose connections are bounded to 2 behind the handshake, and to 3 in it.
type site struct {
	*testing.T
	authority *certs.Authority
	listener  net.Listener
	accepted  chan net.Conn
}

func listen(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, authority: certs.New(t), accepted: make(chan net.Conn, 10)}
	cert, key := s.authority.Server()
	identity, err := mtls.Load(mtls.Files{Cert: cert, Key: key, ClientCA: s.authority.File})
	s.must(err)
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	s.listener = connlimit.Newest(mtls.New(raw, 3, identity, slog.New(slog.DiscardHandler)), 2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.accepted <- c
		}
	}()
	t.Cleanup(func() { s.listener.Close(); <-ended })
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) silent() net.Conn {
	s.Helper()
	raw, err := net.Dial("tcp", s.listener.Addr().String())
	s.must(err)
	s.Cleanup(func() { raw.Close() })
	s.must(raw.SetDeadline(time.Now().Add(20 * time.Second)))
	return raw
}

// client connects with a certificate.
func (s *site) client() *tls.Conn {
	s.Helper()
	cert, key := s.authority.Issue("alice")
	pair, err := tls.LoadX509KeyPair(cert, key)
	s.must(err)
	text, err := os.ReadFile(s.authority.File)
	s.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	c := tls.Client(s.silent(), &tls.Config{ServerName: "127.0.0.1", RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	s.must(c.Handshake())
	return c
}

func TestTheBoundCountsClientsWithCertificates(t *testing.T) {
	s := listen(t)
	s.silent()
	s.client()
	first := <-s.accepted
	s.client()
	<-s.accepted
	third := s.client()
	if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a third client gets %v", err)
	}
	first.Close()
	s.client()
	<-s.accepted
}

func TestTheOldestHandshakeMakesRoom(t *testing.T) {
	s := listen(t)
	oldest := s.silent()
	for range 3 {
		s.silent()
	}
	if _, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest gets %v", err)
	}
	s.client()
	<-s.accepted
}

func TestCloseEndsHandshakesAndKeepsConnections(t *testing.T) {
	s := listen(t)
	c := s.client()
	mine := <-s.accepted
	silent := s.silent()
	begun := time.Now()
	s.must(s.listener.Close())
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Close waits %s for a silent client", took)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent client gets %v", err)
	}
	_, err := mine.Write([]byte("x"))
	s.must(err)
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("an accepted connection: %v", err)
	}
}
