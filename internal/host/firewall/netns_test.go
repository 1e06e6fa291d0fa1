package firewall_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// netns is a network namespace of the test. It ends with its last process, socket and file.
type netns struct {
	name string
	file *os.File
}

func newNetns(t testing.TB, name string) *netns {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	n := &netns{name: name}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		var err error
		n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { n.file.Close() })
	n.ip(t, "link set lo up")
	return n
}

// do runs f on a thread in the namespace. Sockets that f opens belong to it.
func (n *netns) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func (n *netns) ip(t testing.TB, args string) {
	t.Helper()
	err := n.do(func() error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
}

func (n *netns) sysctl(t testing.TB, key, value string) {
	t.Helper()
	if err := n.do(func() error { return os.WriteFile("/proc/sys/"+key, []byte(value), 0) }); err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
}

// path names the namespace for ip.
func (n *netns) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// serve sends back what comes, over connections and as datagrams, at ports of all addresses. Datagrams have a socket for each address: the
// answer of one for all would come from another address.
func (n *netns) serve(t testing.TB, ports ...int) {
	t.Helper()
	err := n.do(func() error {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return err
		}
		for _, port := range ports {
			l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			go accept(l)
			for _, a := range addrs {
				ip := a.(*net.IPNet).IP
				if ip.IsLinkLocalUnicast() && ip.To4() == nil {
					continue
				}
				p, err := net.ListenPacket("udp", net.JoinHostPort(ip.String(), fmt.Sprint(port)))
				if err != nil {
					return err
				}
				t.Cleanup(func() { p.Close() })
				go reflect(p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
}

func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, c); c.Close() }()
	}
}

func reflect(p net.PacketConn) {
	b := make([]byte, 64)
	for {
		n, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = p.WriteTo(b[:n], from)
	}
}

// How long a test waits for packets that should not come, and for those that should.
const (
	short = 300 * time.Millisecond
	long  = 10 * time.Second
)

// dial opens a connection.
func (n *netns) dial(network, addr string, wait time.Duration) (c net.Conn, err error) {
	err = n.do(func() (err error) {
		c, err = net.DialTimeout(network, addr, wait)
		return err
	})
	return c, err
}

// reaches reports whether an echo comes back from "tcp 10.0.0.1:80".
func (n *netns) reaches(t testing.TB, target string, wait time.Duration) bool {
	t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	c, err := n.dial(network, addr, wait)
	if err != nil {
		if !isTimeout(err) {
			t.Errorf("%s to %s: %v: dropped packets time out", n.name, target, err)
		}
		return false
	}
	defer c.Close()
	return echoes(t, c, wait)
}

func echoes(t testing.TB, c net.Conn, wait time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Errorf("write: %v", err)
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	_, err := io.ReadFull(c, make([]byte, 4))
	if err != nil && !isTimeout(err) {
		t.Errorf("read: %v: dropped packets time out", err)
	}
	return err == nil
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout() || errors.Is(err, os.ErrDeadlineExceeded)
}
