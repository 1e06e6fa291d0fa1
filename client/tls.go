package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"google.golang.org/grpc"
)

// TLSFromFiles returns the configuration for a tcp:// host: this client's certificate and its key, and the certificates of the authority that
// signed the daemon's, all PEM. A new certificate and key are read for each connection, the authority's once. Errors name the file.
func TLSFromFiles(cert, key, ca string) (*tls.Config, error) {
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("TLS certificate %s with key %s: %w", cert, key, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("TLS authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("TLS authority %s: the file has no PEM certificate", ca)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
	}, nil
}

// tlsVia reaches a daemon over TCP with mutual TLS.
type tlsVia struct {
	outcome
	host   string // for errors
	addr   string
	config *tls.Config
}

func newTLS(host string, u *url.URL, config *tls.Config) (via, error) {
	switch {
	case u.User != nil || strings.Trim(u.Path, "/") != "":
		return nil, badHost(host, "write tcp://HOST:PORT")
	case u.Port() == "":
		return nil, badHost(host, "it names no port; write tcp://HOST:PORT")
	case config == nil:
		return nil, badHost(host, "it needs a client certificate, its key, and the authority of the daemon's certificate")
	}
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS13)
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	return &tlsVia{host: host, addr: u.Host, config: config}, nil
}

func (t *tlsVia) options() []grpc.DialOption {
	return probed(connectWithin(connectTimeout, firstPause, maxPause))
}

func (*tlsVia) close() {}

func (t *tlsVia) unreachable(cause string) string { return t.describe(t.host, cause) }

func (t *tlsVia) dial(ctx context.Context) (net.Conn, error) {
	conn, err := t.handshake(ctx)
	if err == nil {
		// The daemon checks this client's certificate after our end of the handshake.
		conn, err = t.begin(ctx, conn, whyTLS)
	}
	t.note(err)
	return conn, err
}

func (t *tlsVia) handshake(ctx context.Context) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, t.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(whyTLS(err), raw.Close())
	}
	return conn, nil
}

// whyTLS makes a refusal of an error that TLS itself raises on either side.
func whyTLS(err error) error {
	var record tls.RecordHeaderError
	text := err.Error()
	switch {
	case strings.Contains(text, "tls: certificate required"):
		text = "agboxd requires a client certificate: name one, signed by the authority in its tcp.client_ca"
	case strings.Contains(text, "remote error: tls: "):
		text = "agboxd refuses this client's certificate (" + strings.TrimPrefix(text, "remote error: ") + "): its tcp.client_ca must have signed it, for clients, and tcp.clients must name it or be empty"
	case errors.As(err, &record):
		text = "it does not speak TLS"
	case !strings.Contains(text, "tls: ") && !strings.Contains(text, "x509: ") && !strings.Contains(text, "TLS "):
		return err
	}
	return &refusal{text}
}
