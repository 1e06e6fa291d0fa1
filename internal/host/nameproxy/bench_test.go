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
