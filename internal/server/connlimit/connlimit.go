// Package connlimit bounds the connections of a listener, so that one listener cannot use up the descriptors of the process.
package connlimit

import (
	"net"
	"slices"
	"sync"
)

// Oldest returns a listener with at most limit open connections. One more closes the oldest connection, so a new caller is always
// served, and a client that opens many connections loses its own. limit is at least 1.
func Oldest(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: max(limit, 1), evict: true}
}

// Newest returns a listener with at most limit open connections. It accepts one more and closes it at once, so that its caller
// gets an error instead of waiting, and keeps established connections. limit is at least 1.
func Newest(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: max(limit, 1)}
}

type listener struct {
	net.Listener
	limit int
	evict bool

	mu   sync.Mutex
	open []*conn // in the order in which they were accepted
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, of: l}
		surplus := l.add(c)
		if surplus != nil {
			_ = surplus.Close()
		}
		if surplus != c {
			return c, nil
		}
	}
}

// add counts c and returns the connection that must be closed for it: nil while there is room.
func (l *listener) add(c *conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) < l.limit {
		l.open = append(l.open, c)
		return nil
	}
	if !l.evict {
		return c
	}
	oldest := l.open[0]
	l.open = append(l.open[1:], c)
	return oldest
}

// Release takes a connection out of the count of the listener that accepted it. It stays open.
func Release(c net.Conn) {
	if c, ok := c.(*conn); ok {
		c.of.remove(c)
	}
}

func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

// conn leaves its listener's count when it is closed.
type conn struct {
	net.Conn
	of *listener
}

// NetConn returns the connection itself, as of tls.Conn.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn. The descriptor is closed before the connection leaves the count.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.of.remove(c)
	return err
}
