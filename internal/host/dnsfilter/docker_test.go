//go:build docker

package dnsfilter_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/testing/netns"
)

// Names on the network of a real engine, whose own server asks from within the container's namespace.
func TestNamesUnderDocker(t *testing.T) {
	const resolver = "10.0.0.2"
	e := dockerd.Start(t, "--dns", resolver, "--live-restore")
	busybox.Import(t, e.Host(), "busybox:1")
	file, err := os.Open(e.Netns())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := &site{
		host: &netns.NS{Name: "engine", File: file}, world: netns.New(t, "world"), fw: firewall.New(int(file.Fd())),
		dir: dnsfilter.Dir(t.TempDir()), names: &nameserver{zone: map[string]answer{}},
	}
	s.child = child{Dir: s.dir, Refusals: filepath.Join(t.TempDir(), "refusals"), Upstreams: append(s.child.Upstreams, addrPort(resolver+":53"))}
	t.Cleanup(func() { s.kill(syscall.SIGTERM) })
	s.host.IP(t, "link add uplink type veth peer name eth0 netns "+s.world.Path())
	s.host.IP(t, "link set uplink up")
	s.host.IP(t, "addr add 198.51.100.1/24 dev uplink")
	s.host.IP(t, "route add default via 198.51.100.2")
	s.world.IP(t, "link set eth0 up")
	s.world.IP(t, "addr add 198.51.100.2/24 dev eth0")
	s.world.IP(t, "addr add "+resolver+"/32 dev lo")
	s.world.IP(t, "route add local 1.1.0.0/16 dev lo")
	s.world.Serve(t, 443)
	s.names.listen(t, s.world, resolver+":53")
	s.names.has("a.example", "a.example. 60 A 1.1.1.1")
	s.names.has("b.example", "b.example. 60 A 1.1.1.2")
	var many []string
	for i := range 100 {
		many = append(many, "many.example. 60 A 1.1.2."+string(rune('0'+i/10))+string(rune('0'+i%10)))
	}
	s.names.has("many.example", many[10:]...)

	docker := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "docker", append([]string{"-H", e.Host()}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := docker(args...)
		if err != nil {
			t.Fatalf("docker %v: %v: %s", args, err, out)
		}
		return out
	}
	s.start(t)
	bridge := "br-" + must("network", "create", "--subnet", "10.213.0.0/28", "box")[:12]
	s.enforceOn(t, bridge, "internal", "a.example:443 many.example", "") // before anything runs
	must("run", "-d", "--name", "db", "--network", "box", "--init", "busybox:1", "sh", "-c", "echo hello >/index.html; httpd -f -p 53 -h /")
	must("run", "-d", "--name", "box", "--network", "box", "--init", "busybox:1", "sleep", "1000")
	// The engine publishes the port 53 of another network's container: questions must not go there.
	must("run", "-d", "--name", "foreign", "--init", "-p", "53:53", "busybox:1", "sh", "-c", "echo hello >/index.html; httpd -f -p 53 -h /")
	check := func(what, command string, want bool) {
		t.Helper()
		begun := time.Now()
		out, err := docker("exec", "box", "sh", "-c", command)
		if got := err == nil; got != want {
			t.Errorf("%s: %v: %.300s", what, got, out)
		}
		if d := time.Since(begun); d > 4*time.Second && s.process != nil { // the engine does not pass on that a port refuses

			t.Errorf("%s takes %s", what, d)
		}
	}
	lookup := func(name, addr string) string { return "nslookup -type=a " + name + " 127.0.0.11 | grep " + addr }
	connects := func(to string) string { return "echo ping | nc -w 1 " + to + " | grep ping" }
	check("an address before its name", connects("1.1.1.1 443"), false)
	check("a name", lookup("a.example", "1.1.1.1"), true)
	check("its address", connects("1.1.1.1 443"), true)
	check("a connection by name", connects("a.example 443"), true)
	check("another port", connects("1.1.1.1 80"), false)
	check("another name", lookup("b.example", "1.1.1.2"), false)
	check("another address", connects("1.1.1.2 443"), false)
	check("a name with many addresses", connects("many.example 443"), true)
	check("another server", "nslookup -type=a b.example 8.8.8.8 | grep 1.1.1.2", false)
	check("another server for an allowed name", "nslookup -type=a a.example 8.8.8.8 | grep 1.1.1.1", true)
	check("the name of a container", lookup("db", "10.213.0.2"), true)
	check("port 53 of a container of the own network", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 1 10.213.0.2 53 | grep hello`, true)
	check("port 53 of the host", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 1 198.51.100.1 53 | grep hello`, false)
	s.refused(t, "b.example", dnsfilter.ReasonName, 1)

	s.kill(syscall.SIGKILL)
	check("a name without the filter", lookup("a.example", "1.1.1.1"), false)
	check("a known address without the filter", connects("1.1.1.1 443"), true)
	check("the name of a container without the filter", lookup("db", "10.213.0.2"), true)
	e.Kill()
	e.Start()
	s.start(t)
	s.enforceOn(t, bridge, "internal", "a.example:443 b.example", "")
	check("a name after the restart of both", lookup("b.example", "1.1.1.2"), true)
	check("its address after the restart of both", connects("1.1.1.2 443"), true)
	check("a known address after the restart of both", connects("1.1.1.1 443"), true)
	must("rm", "-f", "box", "db", "foreign")
	must("network", "rm", "box")
}
