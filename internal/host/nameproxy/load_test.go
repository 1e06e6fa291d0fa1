package nameproxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A client's many requests are as many for a server of HTTP/2, and have a bound for another one, which needs a connection for each.
func TestManyRequestsAtOnce(t *testing.T) {
	for h2, bound := range map[bool]int{false: 8, true: 30} {
		var mu sync.Mutex
		requests, conns, reached := 0, map[string]bool{}, make(chan struct{})
		s := server(t, "a.example", h2, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			conns[r.RemoteAddr] = true
			if requests++; requests == bound {
				close(reached)
			}
			mu.Unlock()
			<-reached
		})
		c := newDoor(t, s.Listener.Addr(), nil).client(t, true)
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				if resp, body := answerTo(t, c, get(t, "https://a.example/")); resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", resp.Status, body)
				}
			})
		}
		all.Wait()
		if len(conns) > bound {
			t.Errorf("%d connections for %s", len(conns), version(h2))
		}
	}
}

// Connections that a server closes are not counted any more.
func TestServersThatCloseTheirConnections(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		s := server(t, "a.example", h2, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
		c := newDoor(t, s.Listener.Addr(), nil).client(t, true)
		for i := range 40 {
			if resp, body := answerTo(t, c, get(t, "https://a.example/")); resp.StatusCode != http.StatusOK {
				t.Fatalf("request %d: %s %s", i, resp.Status, body)
			}
		}
	}
}

// Answers that a client does not read do not hold up others.
func TestAnswersThatAreNotRead(t *testing.T) {
	const window = 64 << 10
	sent := make(chan struct{})
	s := server(t, "a.example", true, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 4*window))
		if r.URL.Path == "/endless" {
			_ = http.NewResponseController(w).Flush()
			select {
			case sent <- struct{}{}:
			case <-r.Context().Done():
			}
			<-r.Context().Done()
		}
	})
	c := newDoor(t, s.Listener.Addr(), nil).client(t, true)
	c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: window}
	for range 5 {
		resp, err := c.Do(get(t, "https://a.example/endless"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		select {
		case <-sent: // what the client does not read is in the proxy
		case <-time.After(20 * time.Second):
			t.Fatal("an answer waits for another one")
		}
	}
	if _, body := answerTo(t, c, get(t, "https://a.example/")); len(body) != 4*window {
		t.Errorf("%d bytes", len(body))
	}
}

func TestTheEndOfTheProxyEndsConnectionsOfTLS(t *testing.T) {
	versions(t, func(t *testing.T, client, h2 bool) {
		started, ended, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s := server(t, "a.example", h2, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			close(started)
			<-r.Context().Done()
			close(ended)
		}, func(s *http.Server) {
			s.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					close(closed)
				}
			}
		})
		var resp *http.Response
		t.Run("while it runs", func(t *testing.T) {
			d := newDoor(t, s.Listener.Addr(), nil)
			c := d.client(t, client)
			r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://a.example/", nil)
			var err error
			if resp, err = c.Do(r); err != nil { //nolint:bodyclose // it is, below
				t.Fatal(err)
			}
			<-started
		})
		if resp == nil {
			return
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the answer is complete")
		}
		<-ended
		<-closed
	})
}
