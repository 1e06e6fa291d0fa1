package nameproxy

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
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
	// maxConns bounds the connections to the server for those of one client: a client of HTTP/2 has many requests at once, for each of which a server
	// of HTTP/1 needs one.
	maxConns = 8
)

// answerWindow is how much of an answer is on its way at most, in bytes: over a line of 50 ms one has 10 MB/s.
const answerWindow = 512 << 10

// Those of HTTP/2, in bytes: on the side of the client, and on that of the server. Requests that are not passed on take up to 256 KiB of a connection's buffer
// each, and the ninth is where they hold up the others, as the ninth answer that is not read does.
var (
	clientLimits = &http.HTTP2Config{
		MaxConcurrentStreams: 32, MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 2 << 20, MaxReadFrameSize: 16 << 10,
	}
	serverLimits = &http.HTTP2Config{MaxReceiveBufferPerStream: answerWindow, MaxReceiveBufferPerConnection: 4<<20 - 1, MaxReadFrameSize: 16 << 10}
)

// site is what a connection's requests are for: any host that the policy allows, by plain HTTP; or if in is set, the server with this name, by TLS.
type site struct {
	Proxy
	name string
	in   *Injection
}

// serveHTTP passes the requests of a connection on, each of which names its host. They are parsed, and written by this process, so that the server reads
// the host that was verified.
func (s site) serveHTTP(ctx context.Context, c *begun) {
	defer func() { _ = c.Close() }()
	ctx, end := context.WithCancel(ctx)
	defer end()
	to := s.transport(ctx)
	defer to.CloseIdleConnections()
	quiet := log.New(io.Discard, "", 0) // a sandbox must not fill the log
	pass := httputil.ReverseProxy{
		Transport: to, FlushInterval: -1, ErrorLog: quiet, Rewrite: s.rewrite,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "agbox: "+err.Error(), http.StatusBadGateway)
		},
	}
	if s.in != nil {
		pass.Transport = injector{s.in, s.name, to}
	}
	var handlers sync.RWMutex // which the handlers share: the server does not wait for all
	server := &http.Server{
		ReadHeaderTimeout: helloPatience, IdleTimeout: idle, MaxHeaderBytes: maxHead, ErrorLog: quiet, DisableGeneralOptionsHandler: true,
		HTTP2: clientLimits, BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !handlers.TryRLock() {
				return // the connection has ended
			}
			defer handlers.RUnlock()
			if code, why := s.refusal(r); why != "" {
				http.Error(w, why, code)
				return
			}
			if s.in != nil {
				leave := s.admit(w, r)
				if leave == nil {
					return
				}
				defer leave()
			}
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
			pass := pass
			pass.ModifyResponse = func(resp *http.Response) error {
				if resp.ContentLength == 0 {
					pass.FlushInterval = 0 // what is flushed has no end yet, and gRPC reads errors from a head that is the end, too
				}
				return nil
			}
			pass.ServeHTTP(answer{w}, r)
		}),
	}
	if s.in != nil {
		leave := s.in.enter(server)
		if leave == nil {
			return
		}
		defer leave()
		_ = server.ServeTLS(&single{conn: c}, "", "")
	} else {
		_ = server.Serve(&single{conn: c})
	}
	handlers.Lock()
}

// admit takes the room of a request, or answers it. leave gives the room back; nil: the request is answered.
func (s site) admit(w http.ResponseWriter, r *http.Request) (leave func()) {
	n := int64(requestBytes)
	switch {
	case r.ContentLength < 0:
		n += maxScratch
	case r.ContentLength > 0:
		n += min(r.ContentLength, maxScratch)
	}
	if s.in.Share.take(n, usual) {
		return func() { s.in.Share.give(n) }
	}
	if !s.in.Share.take(refusalBytes, last) {
		panic(http.ErrAbortHandler) // an answer may wait for the client
	}
	defer s.in.Share.give(refusalBytes)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(helloPatience))
	http.Error(w, errBusy.Error(), http.StatusBadGateway)
	return nil
}

// transport returns connections to the server, which end with ctx.
func (s site) transport(ctx context.Context) *http.Transport {
	return &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			c, err := s.dial(ctx)
			if err != nil {
				return nil, err
			}
			return leased{c, context.AfterFunc(ctx, func() { c.Close() })}, nil
		},
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.name, RootCAs: s.Roots},
		ForceAttemptHTTP2: true, HTTP2: serverLimits, TLSHandshakeTimeout: helloPatience, ExpectContinueTimeout: time.Second,
		DisableCompression: true, IdleConnTimeout: idle, MaxResponseHeaderBytes: maxHead, MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxConns,
	}
}

// refusal returns why a request is not passed on, and the status that says so; "" if it is.
func (s site) refusal(r *http.Request) (int, string) {
	host, port := hostname(r.Host)
	own := strconv.Itoa(int(s.To.Port()))
	switch {
	case len(r.Header) > maxFields:
		return http.StatusRequestHeaderFieldsTooLarge, "too many fields"
	case strings.Contains(r.URL.RawQuery, " "): // of HTTP/2: a server of HTTP/1.1 may find another version behind it, and another end of the body
		return http.StatusBadRequest, "a blank in the URL"
	case r.URL.Opaque != "": // it is sent on as it is, and may be the URL of another host
		return http.StatusBadRequest, "neither a path nor the URL of a host"
	case s.in == nil && !s.allows(host):
		return http.StatusForbidden, "the network policy of the sandbox does not let this host through"
	case s.in != nil && slices.ContainsFunc(unadded, func(m string) bool { return strings.EqualFold(m, r.Method) }):
		return http.StatusMethodNotAllowed, "agbox: " + r.Method + " is not passed on to " + s.name
	case s.in != nil && (canonical(host) != s.name || port != "" && port != own):
		return http.StatusMisdirectedRequest, "agbox: this connection is for " + s.name + " at port " + own + " only"
	}
	return 0, ""
}

// unadded are methods whose requests get no headers: what follows CONNECT is no request, and answers to the others have the request's headers. Some servers
// take them in lower case, too.
var unadded = []string{http.MethodConnect, http.MethodTrace, "TRACK"}

// rewrite makes a request what the client sent, but for headers of the connection. The URL's host tells the transport which connections to use again:
// all lead to one address.
func (s site) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery, r.Out.Host = "http", s.To.String(), r.In.URL.RawQuery, r.In.Host
	if s.in != nil {
		r.Out.URL.Scheme, r.Out.Host = "https", s.name // a server may take "A.example." for a host that it does not know, and serve another one
		if _, port := hostname(r.In.Host); port != "" {
			r.Out.Host += ":" + port
		}
	}
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := r.In.Header[h]; values != nil && (s.in == nil || h != "Forwarded" && h != "X-Forwarded-Host") { // which may name another host
			r.Out.Header[h] = values
		}
	}
	// After another upgrade, such as to HTTP/2, requests would follow that are not verified.
	if up := r.In.Header["Upgrade"]; len(up) != 1 || !strings.EqualFold(up[0], "websocket") {
		for _, h := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			r.Out.Header.Del(h)
		}
	}
	r.Out.Trailer = nil // some servers take trailers for headers, such as a host
}

// hostname returns the name and the port in a Host header; "" if it has none, or more than these.
func hostname(host string) (name, port string) {
	name, port, _ = strings.Cut(host, ":")
	if strings.Trim(port, "0123456789") != "" {
		return "", ""
	}
	return name, port
}

// answer is an answer to which the server adds no headers.
type answer struct{ http.ResponseWriter }

func (a answer) WriteHeader(code int) {
	for _, name := range []string{"Content-Type", "Date"} {
		if h := a.Header(); len(h[name]) == 0 {
			h[name] = nil
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap lets the other methods be found.
func (a answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// leased is a connection that a context closes, too.
type leased struct {
	*net.TCPConn
	end func() bool
}

func (l leased) Close() error {
	l.end()
	return l.TCPConn.Close()
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
