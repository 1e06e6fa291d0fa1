package nameproxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
)

// Injection is what is added to the requests for a name. Its functions may be called concurrently.
type Injection struct {
	// Certificate returns a certificate for the name that the client trusts.
	Certificate func() (*tls.Certificate, error)
	// Headers returns the headers of a request, which replace the client's own. Errors are sentences for the client, without the values: the request is
	// not sent, and they are the answer.
	Headers func() (http.Header, error)
	// Share has the memory for the connection and its requests. Without HTTP/2 a connection takes less, so that this is what it speaks if there is less. If
	// there is none its first request is answered 502.
	Share *Share
}

// enter takes the room of a connection, and makes its server one that needs no more. leave gives the room back; nil: there is none, not even to say so.
func (in *Injection) enter(server *http.Server) (leave func()) {
	server.TLSConfig = in.config()
	if in.Share.take(conn2Bytes, spare) {
		var taken atomic.Int64
		taken.Store(conn2Bytes)
		server.TLSConfig.VerifyConnection = func(c tls.ConnectionState) error {
			if c.NegotiatedProtocol != "h2" && taken.CompareAndSwap(conn2Bytes, connBytes) {
				in.Share.give(conn2Bytes - connBytes)
			}
			return nil
		}
		return func() { in.Share.give(taken.Swap(0)) }
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	if in.Share.take(connBytes, usual) {
		return func() { in.Share.give(connBytes) }
	}
	if !in.Share.take(connBytes, last) {
		return nil
	}
	server.SetKeepAlivesEnabled(false)
	server.ReadTimeout, server.WriteTimeout = helloPatience, helloPatience
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, errBusy.Error(), http.StatusBadGateway) })
	return func() { in.Share.give(connBytes) }
}

// config is that of the client's side of TLS.
func (in *Injection) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, // another connection could not read the tickets
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return in.Certificate() },
	}
}

// injector adds headers to the requests for a name, after all that a client can do to a request's headers.
type injector struct {
	*Injection
	name string
	to   http.RoundTripper
}

func (i injector) RoundTrip(r *http.Request) (*http.Response, error) {
	headers, err := i.Headers()
	if err != nil {
		return nil, err
	}
	added := map[string]bool{}
	for name := range headers {
		added[folded(name)] = true
	}
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool {
		return added[folded(name)] || strings.Contains(name, "_") && slices.Contains(framing, folded(name))
	})
	maps.Copy(r.Header, headers)
	resp, err := i.to.RoundTrip(r)
	if invalid, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return nil, fmt.Errorf("the certificate of %s is not valid: %w", i.name, invalid.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // the rest has the host's own address
	}
	if err != nil {
		return nil, fmt.Errorf("the request is not passed on to %s: %w", i.name, err)
	}
	resp.Header.Del("Alt-Svc") // leads clients to HTTP/3, to which nothing is added
	return resp, nil
}

// framing are headers that the transport writes. In another spelling they would go on as the client's.
var framing = []string{"Content-Length", "Host", "Transfer-Encoding"}

// folded returns a header's name in the form that the names of one header share: some servers read "_" as "-".
func folded(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}
