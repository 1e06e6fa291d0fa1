// Package netns makes network namespaces for tests, and runs things in them.
package netns

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

// The process's first thread is kept for the main goroutine, so that none of the namespaces becomes the one that /proc/self shows. Which
// thread a goroutine gets is chance otherwise.
func init() { runtime.LockOSThread() }

// NS is a network namespace of the test. It ends with its last process, socket and file.
type NS struct {
	Name string
	File *os.File
}

// New makes a namespace with a loopback interface. The test is skipped without the privilege.
func New(t testing.TB, name string) *NS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	n := &NS{Name: name}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		var err error
		n.File, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { n.File.Close() })
	n.IP(t, "link set lo up")
	return n
}

// Do runs f on a thread in the namespace. Sockets that f opens and processes that it starts belong to it.
func (n *NS) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.File.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// IP runs the program ip.
func (n *NS) IP(t testing.TB, args string) {
	t.Helper()
	err := n.Do(func() error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
}

// Sysctl sets a value of /proc/sys.
func (n *NS) Sysctl(t testing.TB, key, value string) {
	t.Helper()
	if err := n.Do(func() error { return os.WriteFile("/proc/sys/"+key, []byte(value), 0) }); err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
}

// Path names the namespace for ip.
func (n *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.File.Fd()) }

// Serve sends back what comes, over connections and as datagrams, at ports of all addresses. Datagrams have a socket for each address: the
// answer of one for all would come from another address.
func (n *NS) Serve(t testing.TB, ports ...int) {
	t.Helper()
	err := n.Do(func() error {
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
				t.Cleanup(func() { _ = p.Close() })
				go reflect(p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
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

// Dial opens a connection.
func (n *NS) Dial(network, addr string, wait time.Duration) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		c, err = net.DialTimeout(network, addr, wait)
		return err
	})
	return c, err
}

// Reaches reports whether an echo comes back from a target like "tcp 10.0.0.1:80". Anything but a timeout is an error: dropped packets time out.
func (n *NS) Reaches(t testing.TB, target string, wait time.Duration) bool {
	t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	c, err := n.Dial(network, addr, wait)
	if err != nil {
		if !IsTimeout(err) {
			t.Errorf("%s to %s: %v", n.Name, target, err)
		}
		return false
	}
	defer c.Close()
	return Echoes(t, c, wait)
}

// Echoes reports whether an echo comes back over a connection.
func Echoes(t testing.TB, c net.Conn, wait time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Errorf("write: %v", err)
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	_, err := io.ReadFull(c, make([]byte, 4))
	if err != nil && !IsTimeout(err) {
		t.Errorf("read: %v", err)
	}
	return err == nil
}

// IsTimeout reports whether an error says that no answer came in time.
func IsTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout() || errors.Is(err, os.ErrDeadlineExceeded)
}

// Ping sends one ICMP echo request, whose answer it does not await.
func (n *NS) Ping(t testing.TB, addr string) {
	t.Helper()
	err := n.Do(func() error {
		network, request := "ip4:icmp", []byte{8, 0, 0xf7, 0xfe, 0, 1, 0, 0}
		if strings.Contains(addr, ":") {
			network, request = "ip6:ipv6-icmp", []byte{128, 0, 0, 0, 0, 1, 0, 0} // the kernel sums it
		}
		c, err := net.Dial(network, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(request)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
}
