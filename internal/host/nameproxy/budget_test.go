package nameproxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/nameproxy"
)

// budget makes a door take the memory of its connections from one.
func budget(t *testing.T, server net.Addr, total, each int64) (*door, *nameproxy.Budget) {
	t.Helper()
	b := nameproxy.NewBudget(total, each)
	share := b.Share()
	return newDoor(t, server, func(d *door) {
		inject := d.Inject
		d.Inject = func(name string) *nameproxy.Injection {
			in := inject(name)
			in.Share = share
			return in
		}
	}), b
}

// empty waits until all that was taken is given back.
func empty(t *testing.T, b *nameproxy.Budget) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); b.Taken() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are taken without a connection", b.Taken())
		}
	}
}

// A connection speaks HTTP/1.1 if there is no room for HTTP/2.
func TestConnectionsSpeakWhatThereIsRoomFor(t *testing.T) {
	s := server(t, "a.example", true, func(http.ResponseWriter, *http.Request) {})
	for total, want := range map[int64]bool{5 << 20: false, 6 << 20: true} {
		d, b := budget(t, s.Listener.Addr(), total, total)
		c := d.client(t, true)
		if resp, body := answerTo(t, c, get(t, "https://a.example/")); resp.StatusCode != http.StatusOK || resp.Proto != version(want) {
			t.Errorf("%d: %s %s %q", total, resp.Proto, resp.Status, body)
		}
		c.CloseIdleConnections()
		empty(t, b)
	}
}

// Requests for which a client has no room are answered, and nothing else of it suffers.
func TestRequestsBeyondTheBudget(t *testing.T) {
	*nameproxy.HelloPatience = time.Second
	t.Cleanup(func() { *nameproxy.HelloPatience = 10 * time.Second })
	for h2, each := range map[bool]int64{false: 1500 << 10, true: 6 << 20} {
		arrived, done := make(chan struct{}), make(chan struct{})
		s := server(t, "a.example", true, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				arrived <- struct{}{}
				<-done
			}
		})
		d, b := budget(t, s.Listener.Addr(), 64<<20, each)
		c := d.client(t, h2)
		answers, waiting := make(chan string, 20), 0
		for refused := false; !refused; {
			if waiting++; waiting > cap(answers) {
				t.Fatal("no request is refused")
			}
			r := get(t, "https://a.example/wait")
			go func() {
				resp, err := c.Do(r)
				if err != nil {
					answers <- err.Error()
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				answers <- fmt.Sprint(resp.StatusCode, " ", string(body))
			}()
			select {
			case <-arrived:
			case a := <-answers:
				if waiting--; a != "502 agbox: too many requests have headers added at once\n" {
					t.Fatal(a)
				}
				refused = true
			}
		}
		if waiting == 0 {
			t.Error("no request is passed on")
		}
		close(done)
		for range waiting {
			if a := <-answers; a != "200 " {
				t.Error(a)
			}
		}
		time.Sleep(*nameproxy.HelloPatience + 100*time.Millisecond) // the deadline of a refusal is no other request's
		if resp, body := answerTo(t, c, get(t, "https://a.example/")); resp.StatusCode != http.StatusOK {
			t.Errorf("afterwards: %s %q", resp.Status, body)
		}
		c.CloseIdleConnections()
		empty(t, b)
	}
}

// A connection for which there is no room at all has its first request answered, and ends.
func TestConnectionsBeyondTheBudget(t *testing.T) {
	s := server(t, "a.example", true, func(http.ResponseWriter, *http.Request) { t.Error("a request reaches the server") })
	d, b := budget(t, s.Listener.Addr(), 4<<20, 250<<10)
	c, other := d.dial(t, "a.example"), d.dial(t, "a.example")
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := other.Handshake(); err == nil {
		t.Error("there is room for another refusal")
	}
	if _, err := io.WriteString(c, strings.Repeat("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n", 2)); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(c); err != nil || strings.Count(string(all), " 502 ") != 1 || strings.Count(string(all), "too many") != 1 {
		t.Errorf("%q, %v", all, err)
	}
	empty(t, b)
}

// However much four clients want, another one has room for what it needs.
func TestAQuarterIsLeftToWhoHasLittle(t *testing.T) {
	b := nameproxy.NewBudget(512<<20, 128<<20)
	for i := range 5 {
		n, s := 0, b.Share()
		for s.Take(1 << 20) {
			n++
		}
		if want := map[int]int{0: 128, 1: 128, 2: 128, 3: 4, 4: 4}[i]; n != want {
			t.Errorf("client %d took %d MiB, want %d", i, n, want)
		}
	}
}
