// Package mtls is a listener whose clients have shown who they are with certificates, by TLS 1.3.
package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/server/connlimit"
)

// handshakeTimeout bounds one handshake; a silent client is closed.
const handshakeTimeout = 10 * time.Second

// Files are PEM files, and who may connect.
type Files struct {
	// Cert and Key are the certificate that clients see, with its chain, and its key.
	Cert, Key string
	// ClientCA has the certificates of the authorities that sign those of clients.
	ClientCA string
	// Clients are the names of the clients that may connect; empty: all that ClientCA has signed.
	Clients []string
}

// Identity is what a listener shows to clients and demands from them. It does not change.
type Identity struct {
	cert      tls.Certificate
	authority *x509.CertPool
	clients   []string
}

// Load reads the files. Errors name the file.
func Load(f Files) (*Identity, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("authority of clients: %w", err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authority of clients %s: the file has no PEM certificate", f.ClientCA)
	}
	return &Identity{cert: cert, authority: authority, clients: slices.Clone(f.Clients)}, nil
}

// NotAfter is when the certificate that clients see expires.
func (i *Identity) NotAfter() time.Time { return i.cert.Leaf.NotAfter }

// expirySoon is how long before the certificate expires ExpiryWarning says so.
const expirySoon = 14 * 24 * time.Hour

// ExpiryWarning says in one sentence that the certificate that clients see has expired, or will within 14 days; empty: it will not.
func (i *Identity) ExpiryWarning(now time.Time) string {
	return ExpiryWarning("tcp.cert", i.NotAfter(), now)
}

// ExpiryWarning is that of a certificate in the file of a key of the configuration.
func ExpiryWarning(key string, notAfter, now time.Time) string {
	verb := "expires"
	switch left := notAfter.Sub(now); {
	case left < 0:
		verb = "expired"
	case left >= expirySoon:
		return ""
	}
	return fmt.Sprintf("%s %s on %s; replace it and reload agboxd", key, verb, notAfter.Format(time.DateOnly))
}

func (i *Identity) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{i.cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: i.authority,
		SessionTicketsDisabled: true, // a resumed session would be of an older Identity
		VerifyConnection:       func(s tls.ConnectionState) error { return i.admits(s.PeerCertificates) },
	}
}

// admits reports why a client with this chain may not connect.
func (i *Identity) admits(chain []*x509.Certificate) error {
	more := x509.NewCertPool()
	for _, c := range chain[1:] {
		more.AddCert(c)
	}
	o := x509.VerifyOptions{Roots: i.authority, Intermediates: more, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := chain[0].Verify(o); err != nil {
		return err
	}
	name := Name(chain[0])
	switch {
	case name == "":
		return errors.New("the certificate has no name")
	case len(i.clients) > 0 && !slices.Contains(i.clients, name):
		return fmt.Errorf("client %q is not among those that may connect", name)
	}
	return nil
}

// Name returns the name of a client: the common name of its certificate, or else the first of its DNS names, URIs and email addresses.
func Name(c *x509.Certificate) string {
	names := slices.Concat([]string{c.Subject.CommonName}, c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	for _, name := range append(names, c.EmailAddresses...) {
		if name != "" {
			return name
		}
	}
	return ""
}

// Listener is a net.Listener. What Accept returns has finished its handshake.
type Listener struct {
	raw      net.Listener
	log      *slog.Logger
	accepted chan accepted
	closing  context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup

	mu   sync.Mutex
	now  *Identity
	open map[*Conn]struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

// New returns a listener on raw, which it closes. At most pending connections are in their handshake; one more closes the oldest of them, so
// that clients without a certificate do not use up the connections of others.
func New(raw net.Listener, pending int, i *Identity, log *slog.Logger) *Listener {
	l := &Listener{raw: connlimit.Oldest(raw, pending), log: log, accepted: make(chan accepted), now: i, open: map[*Conn]struct{}{}}
	l.closing, l.stop = context.WithCancel(context.Background())
	l.wg.Go(l.acceptAll)
	return l
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.raw.Addr() }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closing.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes that are under way and waits for them. Accepted connections stay.
func (l *Listener) Close() error {
	l.stop()
	err := l.raw.Close()
	l.wg.Wait()
	return err
}

// Reload replaces the identity: new connections are subject to i, and those of clients that i does not admit are closed.
func (l *Listener) Reload(i *Identity) {
	l.mu.Lock()
	l.now = i
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, c := range open {
		if err := i.admits(c.ConnectionState().PeerCertificates); err != nil {
			l.log.Warn("the connection of a TLS client is closed: it is not admitted any more", "client", c.ClientName(), "reason", err.Error())
			_ = c.NetConn().Close() // not by TLS, which waits for a client that does not read
		}
	}
}

func (l *Listener) acceptAll() {
	for l.closing.Err() == nil {
		raw, err := l.raw.Accept()
		if err == nil {
			l.wg.Go(func() { l.shake(raw) })
			continue
		}
		l.hand(accepted{err: err}) // gRPC waits before it calls again after an error that may pass
	}
}

// hand passes a result to Accept.
func (l *Listener) hand(a accepted) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.closing.Done():
		return false
	}
}

// shake does one handshake.
func (l *Listener) shake(raw net.Conn) {
	l.mu.Lock()
	c := &Conn{Conn: tls.Server(raw, l.now.config()), of: l}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.closing, handshakeTimeout)
	defer cancel()
	err := c.HandshakeContext(ctx)
	if err == nil {
		err = l.admit(c)
	}
	if err != nil {
		l.log.Debug("a TLS client is refused", "addr", raw.RemoteAddr().String(), "reason", err.Error())
		_ = raw.Close()
		return
	}
	connlimit.Release(raw)
	if !l.hand(accepted{conn: c}) {
		_ = c.Close()
	}
}

// admit registers a connection, unless a Reload during its handshake does not admit it.
func (l *Listener) admit(c *Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.now.admits(c.ConnectionState().PeerCertificates); err != nil {
		return err
	}
	l.open[c] = struct{}{}
	return nil
}

// Conn is the connection of one client.
type Conn struct {
	*tls.Conn
	of *Listener
}

// ClientName returns the Name of the client.
func (c *Conn) ClientName() string { return Name(c.ConnectionState().PeerCertificates[0]) }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
