//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/naming"
)

// hostService is a service of the host that says "host" on all addresses of the host.
func hostService(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", ":0") //nolint:gosec,noctx // on all addresses: that is what is tested
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "host\n")
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// fromInside is the script that asks a port of the host, by the address of the network's gateway.
func fromInside(port int) string {
	return fmt.Sprintf(`timeout 2 nc $(ip route | sed -n 's/default via \([0-9.]*\).*/\1/p') %d </dev/null || echo closed`, port)
}

// hostIs waits until the host's service is as wanted for a sandbox: "host" or "closed".
func (d *daemon) hostIs(id string, port int, want string) {
	d.Helper()
	d.eventually(fmt.Sprintf("the service of the host is %q for %s", want, id), func() error {
		if got := strings.TrimSpace(d.sh(id, fromInside(port))); got != want {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// policy changes the network policy of a sandbox in place.
func (d *daemon) policy(id string, n *agboxv1.NetworkSpec) {
	d.Helper()
	spec := proto.CloneOf(d.sandbox(id).GetSpec())
	spec.Network = n
	if changed := d.update(id, spec); !slices.Equal(changed, []string{"network"}) {
		d.Fatalf("the update changed %v", changed)
	}
}

// bridge is the interface of the network of a sandbox.
func (d *daemon) bridge(id string) string {
	d.Helper()
	return naming.Bridge(d.docker("network", "ls", "-q", "--no-trunc", "--filter", "label="+naming.SandboxID+"="+id))
}

// Each mode and its changes in place, on the daemon's own engine: what a sandbox reaches of its host, its services and its published ports.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	port := hostService(t)
	plain := d.create(nil)
	if mode := d.sandbox(plain).GetNetworkMode(); mode != "internet" {
		t.Fatalf("the mode of a spec without a policy is %q", mode)
	}
	closed := listening(0) // later engines than Docker 24 want it so at the create, or never
	closed.Network = &agboxv1.NetworkSpec{Mode: "internal"}
	id := d.create(closed)
	d.await(plain, ready)
	d.hostIs(plain, port, "closed")
	d.remove(plain)
	d.await(id, ready)
	d.policy(id, &agboxv1.NetworkSpec{Mode: "internet"})
	friends := func(what string) { // what a policy never closes, but none
		t.Helper()
		d.wantServed(id)
		if got := d.sh(id, "wget -qO- http://db:8080/name"); got != "db\n" {
			t.Errorf("%s: the service says %q", what, got)
		}
	}
	d.hostIs(id, port, "closed")
	friends("internet")
	d.policy(id, &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{fmt.Sprintf("host:%d/tcp", port)}})
	d.hostIs(id, port, "host")
	d.policy(id, &agboxv1.NetworkSpec{Mode: "internal"})
	d.hostIs(id, port, "closed")
	friends("internal")
	d.policy(id, &agboxv1.NetworkSpec{Mode: "open"})
	d.hostIs(id, port, "host")
	d.policy(id, &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"host:1-65535"}})
	d.hostIs(id, port, "closed")
	friends("open, without the host")
	none := proto.CloneOf(d.sandbox(id).GetSpec())
	none.Network = &agboxv1.NetworkSpec{Mode: "none"}
	if _, err := d.UpdateSandbox(d.ctx(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: none}); !isCode(err, codes.InvalidArgument) {
		t.Errorf("none with services: %v", err)
	}

	lone := d.create(&agboxv1.CreateSpec{
		Ports: []*agboxv1.PortSpec{{ContainerPort: 8080}}, Network: &agboxv1.NetworkSpec{Mode: "none"},
		Command: []string{"sh", "-c", "mkdir -p /tmp/w; echo lone >/tmp/w/name; exec httpd -f -p 8080 -h /tmp/w"},
	})
	d.await(lone, ready)
	published := func(want bool) {
		t.Helper()
		d.eventually(fmt.Sprintf("the published port answers: %t", want), func() error {
			_, err := getName(d.sandbox(lone).GetPorts()[0].GetHostPort())
			if (err == nil) != want {
				return fmt.Errorf("it does not: %w", err)
			}
			return nil
		})
	}
	published(false)
	d.policy(lone, &agboxv1.NetworkSpec{Mode: "open"})
	published(true)
	d.policy(lone, &agboxv1.NetworkSpec{Mode: "none"})
	published(false)
	d.hostIs(lone, port, "closed") // and commands run
	d.policy(lone, &agboxv1.NetworkSpec{Mode: "open"})
	published(true)
	d.hostIs(lone, port, "host")

	rules, bridges := firewall.New(0), []string{d.bridge(id), d.bridge(lone)}
	defer rules.Close()
	d.policy(lone, &agboxv1.NetworkSpec{Mode: "internal"})
	for _, one := range []string{id, lone} {
		d.remove(one)
	}
	left, err := rules.Bridges()
	if err != nil {
		t.Fatal(err)
	}
	for _, bridge := range bridges {
		if slices.Contains(left, bridge) {
			t.Errorf("rules of %s are left", bridge)
		}
	}
}

// Rules hold while the daemon is dead and through a stop and a resume; rules that another program removes are set again at once, and those
// removed while the daemon is dead before it answers.
func TestNetworkRulesOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	port := hostService(t)
	id := d.create(nil)
	d.await(id, ready)
	d.hostIs(id, port, "closed")
	rules := firewall.New(0)
	defer rules.Close()
	bridge := d.bridge(id)
	held := func() error {
		all, err := rules.Bridges()
		if err == nil && !slices.Contains(all, bridge) {
			err = errors.New("it has no rules")
		}
		return err
	}

	d.kill()
	out, err := exec.Command("docker", "exec", naming.Primary(id), "sh", "-c", fromInside(port)).Output()
	if err != nil || strings.TrimSpace(string(out)) != "closed" {
		t.Errorf("without the daemon the host's service says %q, %v", out, err)
	}
	if err := rules.Remove(bridge); err != nil { // as a reload of the host's firewall does
		t.Fatal(err)
	}
	d.start()
	d.eventually("the rules are set again after a restart", held)
	d.hostIs(id, port, "closed")

	if err := rules.Remove(bridge); err != nil && !errors.Is(err, unix.EBUSY) { // their sets are in use where the daemon has set them again already
		t.Fatal(err)
	}
	flushed := time.Now()
	d.eventually("the rules are set again", held)
	t.Logf("there were no rules for %s", time.Since(flushed).Round(time.Millisecond))
	d.hostIs(id, port, "closed")

	d.stopBox(id)
	d.await(id, stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(d)
	d.await(id, ready)
	d.hostIs(id, port, "closed")
}

// outside makes a network of no sandbox, and returns the first three bytes of its addresses, and its name. A container of that name is removed with it. Docker 28
// and newer drop what other networks send to addresses of containers, unless the network says otherwise.
func (d *daemon) outside() (block, name string) {
	d.Helper()
	block = fmt.Sprintf("198.18.%d", rand.IntN(256)) // of no network but this host's
	name = "agbox-e2e-" + strings.ReplaceAll(block, ".", "-")
	d.Cleanup(func() { d.docker("rm", "-f", name); d.docker("network", "rm", name) })
	d.docker("network", "create", "--subnet", block+".0/24", "-o", "com.docker.network.bridge.gateway_mode_ipv4=nat-unprotected", name)
	return block, name
}

// nameServer is a DNS server on a loopback address of this host, which knows addresses of some names.
func nameServer(t *testing.T, addresses map[string][]string) (address string) {
	t.Helper()
	address = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.ListenPacket("udp", address+":53") //nolint:noctx // it lives as long as the test
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg)
		answer.SetReply(q)
		name := q.Question[0].Name
		for _, a := range addresses[strings.TrimSuffix(name, ".")] {
			if q.Question[0].Qtype == dns.TypeA {
				answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(a)})
			}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return address
}

// Names of a policy are answered by a process that outlives the daemon, and nothing else is. Without it names fail at once, and the daemon
// starts it again.
func TestNetworkNames(t *testing.T) {
	t.Parallel()
	upstream := nameServer(t, map[string][]string{
		"api.good.example": {"1.1.1.1"}, "other.example": {"1.0.0.1"}, "rebind.good.example": {"10.9.8.7", "169.254.169.254"},
	})
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.engine = fmt.Sprintf("resolvers = [%q, \"192.0.2.53\"]\n", upstream) // containers get the latter
	d.start()
	spec := listening(0)
	spec.Network = &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"*.good.example:443/tcp"}}
	id := d.create(spec)
	d.await(id, ready)
	resolves := func(name, want string) {
		t.Helper()
		d.eventually(fmt.Sprintf("%s is %q inside", name, want), func() error {
			got := strings.TrimSpace(d.sh(id, "nslookup -type=a "+name+" 2>/dev/null | sed -n '/^Name/,$ s/^Address: *//p'"))
			if got != want {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
	}
	for _, container := range []string{naming.Primary(id), naming.Service(id, "db")} {
		if got := strings.TrimSpace(d.docker("inspect", "-f", "{{.HostConfig.Dns}}", container)); got != "[192.0.2.53]" {
			t.Errorf("the DNS servers of %s are %s", container, got)
		}
	}
	resolves("api.good.example", "1.1.1.1")
	resolves("other.example", "")
	resolves("rebind.good.example", "")
	if got := d.sh(id, "wget -qO- http://db:8080/name"); got != "db\n" {
		t.Errorf("the service says %q", got)
	}

	d.kill()
	out, err := exec.Command("docker", "exec", naming.Primary(id), "nslookup", "-type=a", "api.good.example").Output()
	if err != nil || !strings.Contains(string(out), "1.1.1.1") {
		t.Errorf("without the daemon: %v\n%s", err, out)
	}
	former := d.nameFilter()
	d.engine = fmt.Sprintf("resolvers = [%q]\n", upstream)
	d.start()
	d.eventually("the filter of DNS has the daemon's settings", func() error {
		if now := d.nameFilter(); now == 0 || now == former {
			return fmt.Errorf("its process is %d", now)
		}
		return nil
	})
	resolves("api.good.example", "1.1.1.1")
	d.policy(id, &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"other.example"}})
	resolves("other.example", "1.0.0.1")
	resolves("api.good.example", "")

	first := d.nameFilter()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.eventually("the filter of DNS is started again", func() error {
		if now := d.nameFilter(); now == 0 || now == first {
			return fmt.Errorf("its process is %d", now)
		}
		return nil
	})
	resolves("other.example", "1.0.0.1")
	d.policy(id, &agboxv1.NetworkSpec{Mode: "internal"})
	resolves("other.example", "")
	if policies := must(filepath.Glob(filepath.Join(d.data("dns"), "br-*")))(t); len(policies) > 0 {
		t.Errorf("left are %v", policies)
	}
	d.remove(id)
	if err := syscall.Kill(d.nameFilter(), syscall.SIGKILL); err != nil { // it would end a minute after its last sandbox
		t.Error(err)
	}
}

// One server has an allowed name and another one, and only requests for the allowed one reach it; also while the daemon is dead.
func TestNetworkVerifiesNames(t *testing.T) {
	t.Parallel()
	const port = 8080
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	site, name := d.outside()
	script := fmt.Sprintf("echo served >/tmp/index.html; exec httpd -f -p %d -h /tmp", port)
	if d.docker("run", "-d", "--name", name, "--network", name, "--ip", site+".2", baseImage, "sh", "-c", script) == "" {
		t.Fatal("the server of the names does not start")
	}
	upstream := nameServer(t, map[string][]string{"a.example": {site + ".2"}})
	d.engine = fmt.Sprintf("resolvers = [%q, \"192.0.2.53\"]\n", upstream)
	d.start()
	// A name has a private address only if the policy names that, too: here at another port.
	policy := &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"a.example", site + ".2:1/tcp"}, VerifyNames: true}
	id := d.create(&agboxv1.CreateSpec{Image: baseImage, Network: proto.CloneOf(policy)})
	d.await(id, ready)
	ask := func(host string) string {
		return fmt.Sprintf("timeout 5 wget -qO- --header 'Host: %s' http://a.example:%d/ 2>&1 || true", host, port)
	}
	const good, refused = "served", "wget: server returned error: HTTP/1.1 403 Forbidden"
	d.eventually("the allowed name is served", func() error {
		if got := strings.TrimSpace(d.sh(id, ask("a.example"))); got != good {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if got := strings.TrimSpace(d.sh(id, ask("b.example"))); got != refused {
		t.Errorf("another name: %q", got)
	}
	if got := d.sh(id, fmt.Sprintf("printf 'SSH-2.0-x\\r\\n\\r\\n' | timeout 5 nc a.example %d | head -c 12", port)); got != "HTTP/1.1 400" {
		t.Errorf("another protocol: %q", got)
	}
	d.eventually("the refused name is shown", func() error {
		list := must(d.GetNetworkActivity(d.ctx(), &agboxv1.GetNetworkActivityRequest{SandboxId: id}))(d)
		if !strings.Contains(list.String(), "b.example") {
			return fmt.Errorf("there are %v", list)
		}
		return nil
	})

	d.kill()
	for host, want := range map[string]string{"a.example": good, "b.example": refused} {
		out, err := exec.Command("docker", "exec", naming.Primary(id), "sh", "-c", ask(host)).Output()
		if strings.TrimSpace(string(out)) != want {
			t.Errorf("%s without the daemon: %v %q", host, err, out)
		}
	}
	d.start()
	policy.VerifyNames = false
	d.policy(id, policy)
	d.eventually("the proxy is out of the way", func() error {
		if got := strings.TrimSpace(d.sh(id, ask("b.example"))); got == refused { // Docker 20.10 drops it, newer ones let it pass
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	d.remove(id)
	if err := syscall.Kill(d.nameFilter(), syscall.SIGKILL); err != nil { // it would end a minute after its last sandbox
		t.Error(err)
	}
}

// nameFilter is the process ID of the filter of DNS of this daemon; 0: there is none.
func (d *daemon) nameFilter() int {
	d.Helper()
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline"))(d) {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "\x00dns\x00--dir\x00"+d.data("dns")) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2]) // the pattern says that it is one
			return pid
		}
	}
	return 0
}
