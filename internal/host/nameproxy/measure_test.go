package nameproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/nameproxy"
)

// proxyVariable makes the test binary a proxy to the server that it names.
const proxyVariable = "AGBOX_TEST_PROXY_TO"

func TestMain(m *testing.M) {
	if to := os.Getenv(proxyVariable); to != "" {
		if err := beProxy(to); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beProxy prints its address, and for each line of its input how many bytes it has: in use after a collection, resident, and taken of its budget.
func beProxy(to string) error {
	server, err := net.ResolveTCPAddr("tcp", to)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	budget := nameproxy.NewBudget(1<<40, 1<<40)
	share := budget.Share()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go nameproxy.Proxy{
				To: server.AddrPort(), Roots: pool(outside), Allows: func(string) bool { return true }, Refused: func(string) {},
				Inject: func(name string) *nameproxy.Injection {
					return &nameproxy.Injection{
						Share:       share,
						Certificate: func() (*tls.Certificate, error) { return inside.For(name) },
						Headers:     func() (http.Header, error) { return http.Header{"Authorization": {secret}}, nil },
					}
				},
			}.Serve(context.Background(), c.(*net.TCPConn))
		}
	}()
	fmt.Println(l.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var resident int64
		statm, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return err
		}
		fmt.Sscan(strings.Fields(string(statm))[1], &resident)
		runtime.GC()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(m.HeapInuse+m.StackInuse, resident*int64(os.Getpagesize()), budget.Taken())
	}
	return nil
}

// apart is a proxy that is a process of its own.
type apart struct {
	door
	in  io.Writer
	out *bufio.Reader
}

func newApart(t *testing.T, server net.Addr) *apart {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), proxyVariable+"="+server.String()), os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	p := &apart{door: door{trusted: pool(inside)}, in: in, out: bufio.NewReader(out)}
	addr, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.addr = strings.TrimSpace(addr)
	return p
}

func (p *apart) has(t *testing.T) (inUse, resident, taken int64) {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &inUse, &resident, &taken); err != nil {
		t.Fatal(line, err)
	}
	return inUse, resident, taken
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// What a budget says is taken is more than what connections take in memory, when no side reads what they carry.
func TestMemoryIsWhatIsTaken(t *testing.T) {
	const conns, streams = 2, 32
	part, long := make([]byte, 1<<20), strings.Repeat("a", 100)
	fill := func(h http.Header) {
		for i := range 200 {
			h.Set(fmt.Sprintf("X%d", i), long)
		}
	}
	for what, h2 := range map[string]bool{"answers": true, "uploads": true, "heads": true, "answers to HTTP/1.1": false, "heads of HTTP/1.1": false} {
		t.Run(what, func(t *testing.T) {
			arrived := make(chan struct{}, conns*streams)
			s := server(t, "a.example", true, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(what, "heads") {
					fill(w.Header())
				}
				_ = http.NewResponseController(w).Flush()
				arrived <- struct{}{}
				for strings.HasPrefix(what, "answers") {
					if _, err := w.Write(part); err != nil {
						return
					}
				}
				<-r.Context().Done()
			}, func(s *http.Server) {
				s.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 1, MaxReceiveBufferPerConnection: 64 << 10}
			})
			p := newApart(t, s.Listener.Addr())
			before, residentBefore, _ := p.has(t)
			for range conns {
				c := p.client(t, h2)
				c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 1, MaxReceiveBufferPerConnection: 64 << 10}
				for range streams {
					r := get(t, "https://a.example/")
					if what == "uploads" {
						r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(endless{}), -1
					}
					if strings.HasPrefix(what, "heads") {
						fill(r.Header)
					}
					go func() {
						if resp, err := c.Do(r); err == nil {
							<-t.Context().Done()
							resp.Body.Close()
						}
					}()
				}
			}
			for range conns * streams {
				select {
				case <-arrived:
				case <-time.After(20 * time.Second):
					t.Fatal("requests do not arrive")
				}
			}
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				now, resident, taken := p.has(t)
				if now-before > taken {
					t.Fatalf("%d KiB are in use, and %d taken", (now-before)>>10, taken>>10)
				}
				if time.Until(end) < 60*time.Millisecond {
					t.Logf("%d MiB in use of %d MiB; resident are %d MiB, and %d before", (now-before)>>20, taken>>20, resident>>20, residentBefore>>20)
				}
			}
		})
	}
}
