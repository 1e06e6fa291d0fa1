// Package nameproxy passes TCP connections on whose destination a client has chosen by address, if they ask for a name that they may: TLS by
// its server name, HTTP by the host of each request. It decrypts TLS only to add headers to the requests for a name. What a server does with another
// name that is allowed, such as one more name inside of TLS, it does not see.
package nameproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Bounds of a connection.
const (
	// dialPatience is the time in which the server has to answer.
	dialPatience = 30 * time.Second
	// maxHello is the size of what is read of a client before it has named a server, in bytes. A ClientHello has at most 64 KiB of its own.
	maxHello = 80 << 10
	// maxName is the length of the longest name of DNS. One of TLS has up to 64 KiB.
	maxName = 253
)

// helloPatience is the time in which a client has to say which name it wants. Tests shorten it.
var helloPatience = 10 * time.Second

// handshake is the first byte of a connection of TLS. No request of HTTP begins with it.
const handshake = 0x16

// Proxy passes connections on.
type Proxy struct {
	// To is the address that the client chose.
	To netip.AddrPort
	// Allows reports whether the client may ask for a name, which is in lower case and without the final dot.
	Allows func(name string) bool
	// Refused is called with each name that it may not ask for, in that form; with "" for a connection that asks for none, or for what is no name.
	Refused func(name string)
	// Opaque passes on what asks for any name, and what is neither TLS nor HTTP. Allows and Refused are not called then.
	Opaque bool
	// Inject returns what is added to the requests for a name by TLS, which is as Allows has it; nil: nothing, and TLS is not decrypted. It may be
	// nil itself.
	Inject func(name string) *Injection
	// Roots verify the servers to which headers are sent; nil: those of the host.
	Roots *x509.CertPool
}

// Serve passes a connection on, until both sides have ended it or ctx ends, and closes it.
func (p Proxy) Serve(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_ = c.SetReadDeadline(time.Now().Add(helloPatience))
	read := make([]byte, 1)
	n, err := io.ReadFull(c, read)
	if err != nil && !p.Opaque {
		return // a client that sends nothing has asked for nothing
	}
	read = read[:n]
	byTLS, name := n == 1 && read[0] == handshake, ""
	if byTLS {
		name, read = serverName(ctx, c, read)
	}
	if !p.Opaque && byTLS && !p.allows(name) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // the socket has room for it
		_, _ = c.Write(unrecognizedName)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	rest := &begun{Conn: c, rest: io.MultiReader(bytes.NewReader(read), c), closed: make(chan struct{})}
	if in := p.injection(name); in != nil {
		site{p, name, in}.serveHTTP(ctx, rest)
	} else if byTLS || p.Opaque {
		p.pass(ctx, c, read)
	} else {
		site{Proxy: p}.serveHTTP(ctx, rest)
	}
}

// pass passes a connection on, of which some bytes are read.
func (p Proxy) pass(ctx context.Context, c *net.TCPConn, read []byte) {
	server, err := p.dial(ctx)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if _, err := server.Write(read); err == nil {
		splice(c, server)
	}
}

// allows reports whether a connection may ask for a name, in any form in which it may be written.
func (p Proxy) allows(name string) bool {
	name = canonical(name)
	if name != "" && p.Allows(name) {
		return true
	}
	p.Refused(name)
	return false
}

// injection returns what is added to the requests for a name, which may be "".
func (p Proxy) injection(name string) *Injection {
	if name == "" || p.Inject == nil {
		return nil
	}
	return p.Inject(name)
}

// canonical returns a name in lower case and without the final dot; "" for what is no name.
func canonical(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > maxName || strings.Trim(name, letters) != "" { // servers may end a name at another character
		return ""
	}
	return name
}

// letters are those of names in lower case.
const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."

func (p Proxy) dial(ctx context.Context) (*net.TCPConn, error) {
	c, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp", p.To.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// unrecognizedName is the alert of TLS with which a server says that it does not serve a name: programs show it.
var unrecognizedName = []byte{21, 3, 3, 0, 2, 2, 112}

// errRead ends a handshake once the client's first message is read.
var errRead = errors.New("the hello is read")

// serverName reads the first message of a client of TLS, of which some bytes are read, and returns the name in it, "" if there is none,
// and all bytes that are read.
func serverName(ctx context.Context, c net.Conn, first []byte) (name string, read []byte) {
	var all bytes.Buffer
	from := io.TeeReader(io.LimitReader(io.MultiReader(bytes.NewReader(first), c), maxHello), &all)
	err := tls.Server(listener{c, from}, &tls.Config{
		MinVersion: tls.VersionTLS12, // of no consequence: there is no handshake
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errRead
		},
	}).HandshakeContext(ctx)
	if !errors.Is(err, errRead) {
		name = ""
	}
	return canonical(name), all.Bytes()
}

// listener is a connection on which nothing is sent.
type listener struct {
	net.Conn
	from io.Reader
}

func (l listener) Read(p []byte) (int, error)  { return l.from.Read(p) }
func (l listener) Write(p []byte) (int, error) { return len(p), nil }

// splice copies both ways, and passes the end of each way on.
func splice(client, server *net.TCPConn) {
	var all sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		all.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				way[0].Close()
				way[1].Close()
			}
			_ = way[1].CloseWrite()
		})
	}
	all.Wait()
}
