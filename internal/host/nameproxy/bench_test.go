package nameproxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/nameproxy"
)

// BenchmarkRequests compares requests to a server with those that are passed on as they are, and those to which headers are added.
func BenchmarkRequests(b *testing.B) {
	body := make([]byte, 64<<20)
	s := server(b, "a.example", true, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.RawQuery)
		_, _ = w.Write(body[:n])
	})
	d := newDoor(b, s.Listener.Addr(), nil)
	opaque := newDoor(b, s.Listener.Addr(), func(d *door) {
		d.Opaque, d.Inject = true, func(string) *nameproxy.Injection { return nil }
	})
	for _, size := range []int{1 << 10, len(body)} {
		for _, way := range []struct {
			name, addr string
			roots      *x509.CertPool
		}{{"direct", s.Listener.Addr().String(), pool(outside)}, {"passed on", opaque.addr, pool(outside)}, {"headers added", d.addr, pool(inside)}} {
			b.Run(fmt.Sprintf("%s/%d", way.name, size), func(b *testing.B) {
				transport := &http.Transport{
					Dial: func(string, string) (net.Conn, error) { return net.Dial("tcp", way.addr) }, ForceAttemptHTTP2: true,
					TLSClientConfig: &tls.Config{RootCAs: way.roots},
				}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport}
				b.SetBytes(int64(size))
				for b.Loop() {
					resp, err := client.Get(fmt.Sprintf("https://a.example/?%d", size))
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
	}
}

// BenchmarkFarAnswers receives answers of a server that is 50 ms away, there and back.
func BenchmarkFarAnswers(b *testing.B) {
	body := make([]byte, 8<<20)
	s := server(b, "a.example", true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	client := newDoor(b, far(b, s.Listener.Addr(), 25*time.Millisecond), nil).client(b, true)
	client.Timeout = 0
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, got := answerTo(b, client, get(b, "https://a.example/")); len(got) != len(body) {
			b.Fatal(len(got))
		}
	}
}

// far returns the address of a relay to a server that delays each byte by d, in both directions.
func far(t testing.TB, server net.Addr, d time.Duration) net.Addr {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	type part struct {
		due  time.Time
		data []byte
	}
	relay := func(to, from net.Conn) {
		parts := make(chan part, 1<<16)
		go func() {
			defer close(parts)
			for {
				data := make([]byte, 32<<10)
				n, err := from.Read(data)
				if err != nil {
					return
				}
				parts <- part{time.Now().Add(d), data[:n]}
			}
		}()
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		to.Close()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server.String())
			if err != nil {
				c.Close()
				return
			}
			go relay(s, c)
			go relay(c, s)
		}
	}()
	return l.Addr()
}
