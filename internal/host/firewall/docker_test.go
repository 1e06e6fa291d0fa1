//go:build docker

package firewall_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/busybox"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// nameserver answers every question for an address with 1.1.1.1, and remembers who asked.
type nameserver struct {
	mu     sync.Mutex
	asking []string
}

func (n *nameserver) serve(p net.PacketConn) {
	b := make([]byte, 512)
	for {
		size, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.asking = append(n.asking, from.String())
		n.mu.Unlock()
		end := 12
		for end < size && b[end] != 0 {
			end += int(b[end]) + 1
		}
		end += 5 // the empty label, type and class
		if end > size {
			continue
		}
		answer := append([]byte{}, b[:end]...)
		binary.BigEndian.PutUint16(answer[2:], 0x8180)
		binary.BigEndian.PutUint64(answer[4:], 1<<48)
		if binary.BigEndian.Uint16(answer[end-4:]) == 1 {
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 1, 1, 1, 1)
		}
		_, _ = p.WriteTo(answer, from)
	}
}

// docker runs the engine's client.
func docker(t *testing.T, e *dockerd.Engine, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", append([]string{"-H", e.Host()}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// The rules on the networks of a real engine: its own resolver, its published ports, its filter, and its death.
func TestRulesUnderDocker(t *testing.T) {
	for _, iptables := range []string{"iptables-nft", "iptables-legacy"} {
		t.Run(iptables, func(t *testing.T) {
			program, err := exec.LookPath(iptables)
			if err != nil {
				t.Skip(err)
			}
			if out, err := exec.Command("unshare", "-n", program, "-t", "nat", "-L", "-n").CombinedOutput(); err != nil {
				t.Skipf("the kernel lacks it: %s", out)
			}
			dir := t.TempDir()
			if err := os.Symlink(program, filepath.Join(dir, "iptables")); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			testRulesUnderDocker(t)
		})
	}
}

func testRulesUnderDocker(t *testing.T) {
	const resolver = "10.9.9.9"
	e := dockerd.Start(t, "--dns", resolver, "--live-restore")
	busybox.Import(t, e.Host(), "busybox:1")
	file, err := os.Open(e.Netns())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	host, world := &netns.NS{Name: "engine", File: file}, netns.New(t, "world")
	host.IP(t, "link add uplink type veth peer name eth0 netns "+world.Path())
	host.IP(t, "link set uplink up")
	host.IP(t, "addr add 198.51.100.1/24 dev uplink")
	host.IP(t, "route add default via 198.51.100.2")
	world.IP(t, "link set eth0 up")
	world.IP(t, "addr add 198.51.100.2/24 dev eth0")
	for _, a := range []string{resolver, "1.1.1.1", "10.0.0.9"} {
		world.IP(t, "addr add "+a+"/32 dev lo")
	}
	var names nameserver
	err = world.Do(func() error {
		p, err := net.ListenPacket("udp", resolver+":53")
		if err == nil {
			t.Cleanup(func() { p.Close() })
			go names.serve(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	world.Serve(t, 80)
	host.Serve(t, 8080)

	must := func(args ...string) string {
		t.Helper()
		out, err := docker(t, e, args...)
		if err != nil {
			t.Fatalf("docker %v: %v: %s", args, err, out)
		}
		return out
	}
	id := must("network", "create", "--subnet", "10.213.0.0/28", "box")
	f := netrules.Facts{Bridge: "br-" + id[:12], Pool: []netip.Prefix{netip.MustParsePrefix("10.213.0.0/16")}, Resolvers: []netip.Addr{netip.MustParseAddr(resolver)}}
	fw := firewall.New(int(file.Fd()))
	enforce := func(mode string) netrules.Rules {
		t.Helper()
		r, err := netrules.Make(mode, &agboxv1.NetworkSpec{Mode: mode}, f)
		if err != nil {
			t.Fatal(err)
		}
		if err := fw.Enforce(r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	enforce("internet") // before anything runs
	must("run", "-d", "--name", "db", "--network", "box", "--init", "busybox:1", "sh", "-c", "echo hello >/index.html; httpd -f -p 80 -h /")
	must("run", "-d", "--name", "box", "--network", "box", "--init", "-p", "127.0.0.1:7070:80", "busybox:1", "sh", "-c", "echo hello >/index.html; httpd -f -p 80 -h /")
	if gateway := must("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", "box"); gateway != "10.213.0.1" {
		t.Fatalf("gateway %s", gateway)
	}
	works := func(container, command string) bool {
		out, err := docker(t, e, "exec", container, "sh", "-c", command)
		t.Logf("%s: %s: %v: %.100q", container, command, err == nil, out)
		return err == nil
	}
	connects := func(to string) string { return "echo ping | nc -w 1 " + to + " | grep ping" }
	expect := func(mode string, public, names, own bool) {
		t.Helper()
		for _, c := range []struct {
			what, command string
			want          bool
		}{
			{"a public address", connects("1.1.1.1 80"), public}, {"a private address", connects("10.0.0.9 80"), false},
			{"the host", connects("10.213.0.1 8080"), false}, {"the host's other address", connects("198.51.100.1 8080"), false},
			{"a name", "nslookup -type=a example.org 127.0.0.11 | grep 1.1.1.1", names}, {"the name of a container", "nslookup -type=a db 127.0.0.11 | grep 10.213.0.2", true}, {"a container", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 1 10.213.0.2 80 | grep hello`, own},
		} {
			if got := works("box", c.command); got != c.want {
				t.Errorf("%s: %s is reached: %v", mode, c.what, got)
			}
		}
	}
	published := func() bool {
		c, err := host.Dial("tcp", "127.0.0.1:7070", long)
		if err != nil {
			t.Fatal(err) // the engine's proxy accepts in any case
		}
		defer c.Close()
		_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, _ := c.Read(make([]byte, 16))
		return n > 0
	}

	if !works("box", "cat /etc/resolv.conf | grep 127.0.0.11") {
		t.Error("the engine's resolver is elsewhere")
	}
	expect("internet", true, true, true)
	if !published() {
		t.Error("internet: the published port does not answer")
	}
	names.mu.Lock()
	if len(names.asking) == 0 || !strings.HasPrefix(names.asking[0], "198.51.100.1:") {
		t.Errorf("asked by %v", names.asking) // masqueraded: from the container's namespace, through the bridge
	}
	names.mu.Unlock()
	enforce("internal")
	expect("internal", false, false, true) // a name that did not pass is asked from the container's namespace
	begun := time.Now()
	if out, _ := docker(t, e, "exec", "box", "nslookup", "-type=aaaa", "db", "127.0.0.11"); time.Since(begun) > 2*time.Second {
		t.Errorf("internal: that a container has no IPv6 address takes %s to say: %s", time.Since(begun), out) // programs ask for both
	}
	if !published() {
		t.Error("internal: the published port does not answer")
	}
	enforce("none")
	expect("none", false, false, false)
	if published() {
		t.Error("none: the published port answers")
	}

	rules := enforce("internet")
	e.Kill()
	if ok, err := fw.Holds(rules); err != nil || !ok {
		t.Errorf("without the engine: %v, %v", ok, err)
	}
	e.Start()
	if ok, err := fw.Holds(rules); err != nil || !ok {
		t.Errorf("after its restart: %v, %v", ok, err)
	}
	expect("restarted", true, true, true)
	must("rm", "-f", "box", "db")
	must("network", "rm", "box")
	if ok, err := fw.Holds(rules); err != nil || !ok {
		t.Errorf("after the network's removal: %v, %v", ok, err)
	}
	if err := fw.Drop(); err != nil {
		t.Error(err)
	}
}
