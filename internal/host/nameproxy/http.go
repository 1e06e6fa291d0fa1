package nameproxy

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

const (
	// maxHead is the size of the head of a request or an answer, in bytes, and maxFields the number of a request's fields: a field of five bytes
	// takes a hundred in memory. idle is the time that a connection waits for the next request.
	maxHead   = 32 << 10
	maxFields = 256
	idle      = 2 * time.Minute
)

// serveHTTP passes the requests of a connection on, each of which names its host. They are parsed, and written by this process, so that the server reads
// the host that was verified.
func (p Proxy) serveHTTP(ctx context.Context, c *begun) {
	defer func() { _ = c.Close() }()
	to := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
		DisableCompression: true, IdleConnTimeout: idle, MaxResponseHeaderBytes: maxHead,
	}
	defer to.CloseIdleConnections()
	quiet := log.New(io.Discard, "", 0) // a sandbox must not fill the log
	pass := &httputil.ReverseProxy{
		Transport: to, FlushInterval: -1, ErrorLog: quiet, Rewrite: p.rewrite,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	var handlers sync.WaitGroup // of which the server does not wait for those that took the connection over
	server := &http.Server{
		ReadHeaderTimeout: helloPatience, IdleTimeout: idle, MaxHeaderBytes: maxHead, ErrorLog: quiet, DisableGeneralOptionsHandler: true,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			if len(r.Header) > maxFields {
				http.Error(w, "too many fields", http.StatusRequestHeaderFieldsTooLarge)
				return
			}
			if r.URL.Opaque != "" { // it is sent on as it is, and may be the URL of another host
				http.Error(w, "neither a path nor the URL of a host", http.StatusBadRequest)
				return
			}
			if !p.allows(hostname(r.Host)) {
				http.Error(w, "the network policy of the sandbox does not let this host through", http.StatusForbidden)
				return
			}
			w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // the server adds none
			_ = http.NewResponseController(w).EnableFullDuplex()      // the connection is of HTTP/1
			pass.ServeHTTP(w, r)
		}),
	}
	_ = server.Serve(&single{conn: c})
	handlers.Wait()
}

// rewrite makes a request what the client sent, but for headers of the connection. The URL's host tells the transport which connections to use again:
// all lead to one address.
func (p Proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery, r.Out.Host = "http", p.To.String(), r.In.URL.RawQuery, r.In.Host
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := r.In.Header[h]; values != nil {
			r.Out.Header[h] = values
		}
	}
	// After another upgrade, such as to HTTP/2, requests would follow that are not verified.
	if up := r.In.Header["Upgrade"]; len(up) != 1 || !strings.EqualFold(up[0], "websocket") {
		for _, h := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			r.Out.Header.Del(h)
		}
	}
}

// hostname returns the name in a Host header; "" if it has none, or more than a name and a port.
func hostname(host string) string {
	name, port, _ := strings.Cut(host, ":")
	if strings.Trim(port, "0123456789") != "" {
		return ""
	}
	return name
}

// begun is a connection of which some bytes are read.
type begun struct {
	net.Conn
	rest   io.Reader
	once   sync.Once
	closed chan struct{}
}

func (b *begun) Read(p []byte) (int, error) { return b.rest.Read(p) }

func (b *begun) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// single is a listener that accepts one connection, and ends when that is closed.
type single struct {
	conn  *begun
	given bool
}

func (s *single) Accept() (net.Conn, error) {
	if !s.given {
		s.given = true
		return s.conn, nil
	}
	<-s.conn.closed
	return nil, net.ErrClosed
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }
