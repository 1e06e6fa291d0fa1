package dnsfilter_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// child is the configuration of a filter in a process of its own, which a test can kill.
type child struct {
	Dir       dnsfilter.Dir
	Identity  string
	Upstreams []netip.AddrPort
	Refusals  string
	Roots     string // PEM
	Limits    dnsfilter.Limits
}

const childEnv = "TEST_DNSFILTER"

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.Roots))
	err := dnsfilter.Run(ctx, dnsfilter.Config{
		Roots: roots, Dir: c.Dir, Identity: c.Identity, Port: port, Upstreams: func() []netip.AddrPort { return c.Upstreams }, Admit: firewall.New(0).Admit, Limits: c.Limits,
		Report: dnsfilter.ReportTo(c.Refusals, func(err error) { panic(err) }),
		Log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		panic(err)
	}
}

const (
	port                = dnsfilter.DefaultPort
	bridge, otherBridge = "br-aaaaaaaaaaaa", "br-bbbbbbbbbbbb"
	short, long         = 300 * time.Millisecond, 10 * time.Second
	patience            = 5 * time.Second // for an answer, as glibc
)

// site is a host with two sandboxes and a world behind it, which has every address of some networks, and a server of DNS.
type site struct {
	host, world, sandbox, other *netns.NS
	fw                          *firewall.Firewall
	dir                         dnsfilter.Dir
	names                       *nameserver
	child                       child
	process                     *exec.Cmd
	verify                      bool              // names, in policies that are enforced
	inject                      *dnsfilter.Inject // in them
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	s := &site{
		host: netns.New(t, "host"), world: netns.New(t, "world"), sandbox: netns.New(t, "sandbox"), other: netns.New(t, "other"),
		dir: dnsfilter.Dir(t.TempDir()), names: &nameserver{zone: map[string]answer{}},
	}
	s.host.Sysctl(t, "net/ipv4/ip_forward", "1")
	s.host.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	s.host.IP(t, "link add uplink type veth peer name eth0 netns "+s.world.Path())
	s.host.IP(t, "link set uplink up")
	s.host.IP(t, "addr add 198.51.100.1/24 dev uplink")
	s.host.IP(t, "addr add 2606:4700:1::1/64 dev uplink nodad")
	s.host.IP(t, "addr add 9.9.9.9/32 dev uplink") // a public address of the host
	s.host.IP(t, "route add default via 198.51.100.2")
	s.host.IP(t, "-6 route add default via 2606:4700:1::2")
	s.world.IP(t, "link set eth0 up")
	s.world.IP(t, "addr add 198.51.100.2/24 dev eth0")
	s.world.IP(t, "addr add 2606:4700:1::2/64 dev eth0 nodad")
	s.world.IP(t, "route add default via 198.51.100.1")
	s.world.IP(t, "-6 route add default via 2606:4700:1::1")
	for _, block := range []string{"1.1.0.0/16", "10.0.0.0/16", "169.254.169.254/32", "2606:4700:2::/64"} {
		s.world.IP(t, "route add local "+block+" dev lo")
	}
	for i, b := range []string{bridge, otherBridge} {
		s.host.IP(t, "link add "+b+" type bridge")
		s.bridge(t, i, b)
	}
	s.attach(t, s.sandbox, bridge, 0)
	s.attach(t, s.other, otherBridge, 1)
	s.world.Serve(t, 443)
	s.world.Serve(t, 80)
	s.names.listen(t, s.world, "10.0.0.2:53")
	s.fw = firewall.New(int(s.host.File.Fd()))
	s.child = child{
		Dir: s.dir, Upstreams: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:53")}, Refusals: filepath.Join(t.TempDir(), "refusals"),
		Limits: dnsfilter.Limits{ReportEvery: 100 * time.Millisecond, SandboxRate: 1 << 20},
	}
	t.Cleanup(func() { s.kill(syscall.SIGTERM) })
	return s
}

func (s *site) bridge(t *testing.T, i int, name string) {
	t.Helper()
	s.host.IP(t, "link set "+name+" up")
	s.host.IP(t, fmt.Sprintf("addr add 10.213.0.%d/28 dev %s", i*16+1, name))
	s.host.IP(t, fmt.Sprintf("addr add fd13:0:0:%d::1/64 dev %s nodad", i, name))
}

func (s *site) attach(t *testing.T, n *netns.NS, bridge string, i int) {
	t.Helper()
	s.host.IP(t, fmt.Sprintf("link add veth%d type veth peer name eth0 netns %s", i, n.Path()))
	s.host.IP(t, fmt.Sprintf("link set veth%d master %s up", i, bridge))
	n.IP(t, "link set eth0 up")
	n.IP(t, fmt.Sprintf("addr add 10.213.0.%d/28 dev eth0", i*16+2))
	n.IP(t, fmt.Sprintf("addr add fd13:0:0:%d::2/64 dev eth0 nodad", i))
	n.IP(t, fmt.Sprintf("route add default via 10.213.0.%d", i*16+1))
	n.IP(t, fmt.Sprintf("-6 route add default via fd13:0:0:%d::1", i))
}

// start starts the filter as a process of the host.
func (s *site) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(s.child)
	if err != nil {
		t.Fatal(err)
	}
	s.process = exec.Command(os.Args[0])
	s.process.Env = append(os.Environ(), childEnv+"="+string(text))
	s.process.Stderr = t.Output()
	if err := s.host.Do(s.process.Start); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the filter runs", s.dir.Running)
}

func (s *site) kill(signal syscall.Signal) {
	if s.process != nil {
		_ = s.process.Process.Signal(signal)
		_ = s.process.Wait()
		s.process = nil
	}
}

// enforce puts a policy into force as the daemon does, and waits until the filter answers by it.
func (s *site) enforce(t *testing.T, mode, allow, deny string) dnsfilter.Policy {
	t.Helper()
	return s.enforceOn(t, bridge, mode, allow, deny)
}

func (s *site) enforceOn(t *testing.T, bridge, mode, allow, deny string) dnsfilter.Policy {
	t.Helper()
	p := s.rules(t, bridge, mode, allow, deny)
	if err := s.dir.Write(p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if err := s.dir.Await(ctx, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *site) injected() []dnsfilter.Injected {
	if s.inject == nil {
		return nil
	}
	return s.inject.Headers
}

func (s *site) rules(t *testing.T, bridge, mode, allow, deny string) dnsfilter.Policy {
	t.Helper()
	spec := &agboxv1.NetworkSpec{Mode: mode, Allow: strings.Fields(allow), Deny: strings.Fields(deny), VerifyNames: s.verify}
	p, filtered, err := dnsfilter.PolicyOf("of-"+bridge, bridge, mode, spec, s.inject)
	if err != nil || !filtered {
		t.Fatal(filtered, err)
	}
	f := netrules.Facts{Bridge: bridge, Pool: []netip.Prefix{netip.MustParsePrefix("10.213.0.0/16"), netip.MustParsePrefix("fd13::/48")}, Forwarder: port}
	for _, h := range s.injected() {
		rule, err := inject.Parse(h.Secret, &agboxv1.InjectRule{Host: h.Host, Header: h.Header})
		if err != nil {
			t.Fatal(err)
		}
		f.Injected = append(f.Injected, rule.Host)
	}
	r, err := netrules.Make(mode, spec, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fw.Enforce(r); err != nil {
		t.Fatal(err)
	}
	return p
}

func eventually(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	for deadline := time.Now().Add(long); ; time.Sleep(5 * time.Millisecond) {
		ok, err := is()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", long, what)
		}
	}
}

// ask asks from a sandbox, of a server that does not exist: the rules redirect the question.
func ask(t *testing.T, from *netns.NS, network, name string, qtype uint16) (*dns.Msg, error) {
	t.Helper()
	server := "8.8.8.8:53"
	if network == "udp6" {
		network, server = "udp", "[2001:4860:4860::8888]:53"
	}
	c, err := from.Dial(network, server, long)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	q.SetEdns0(4096, false)
	m, _, err := (&dns.Client{Net: network, Timeout: patience}).ExchangeWithConn(q, &dns.Conn{Conn: c})
	return m, err
}

// lookup returns the addresses of a name, or the code of an answer without any.
func (s *site) lookup(t *testing.T, name string) string {
	t.Helper()
	return lookup(t, s.sandbox, name, dns.TypeA)
}

func lookup(t *testing.T, from *netns.NS, name string, qtype uint16) string {
	t.Helper()
	m, err := ask(t, from, "udp", name, qtype)
	if err == nil && m.Truncated {
		m, err = ask(t, from, "tcp", name, qtype)
	}
	if err != nil {
		return err.Error()
	}
	var got []string
	for _, r := range m.Answer {
		switch r := r.(type) {
		case *dns.A:
			got = append(got, r.A.String())
		case *dns.AAAA:
			got = append(got, r.AAAA.String())
		}
	}
	if len(got) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	return strings.Join(got, " ")
}

func (s *site) expect(t *testing.T, want map[string]string) {
	t.Helper()
	for name, addrs := range want {
		if got := s.lookup(t, name); got != addrs {
			t.Errorf("%s: %s, want %s", name, got, addrs)
		}
	}
}

// reaches fails the test unless connections to addresses pass, or do not.
func (s *site) reaches(t *testing.T, want bool, addrs ...string) {
	t.Helper()
	wait := short
	if want {
		wait = long
	}
	var all sync.WaitGroup
	for _, a := range addrs {
		all.Go(func() {
			if got := s.sandbox.Reaches(t, "tcp "+a, wait); got != want {
				t.Errorf("%s passes: %v", a, got)
			}
		})
	}
	all.Wait()
}

// refused waits until so many refusals of a name are reported, and returns the last line about it with the count of all.
func (s *site) refused(t *testing.T, name string, why dnsfilter.Reason, count uint64) (one dnsfilter.Refusal) {
	t.Helper()
	eventually(t, "the refusal of "+name+" is reported", func() (bool, error) {
		body, _ := os.ReadFile(s.child.Refusals)
		one.Count = 0
		for line := range strings.Lines(string(body)) {
			var r dnsfilter.Refusal
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return false, err
			}
			if r.Name == name && r.Reason == why {
				r.Count += one.Count
				one = r
			}
		}
		return one.Count >= count, nil
	})
	return one
}

// nameserver answers as its zone says.
type nameserver struct {
	mu    sync.Mutex
	zone  map[string]answer // by name and type
	asked map[string]int
}

// answer writes what the server says to a question.
type answer func(w dns.ResponseWriter, q *dns.Msg)

func (n *nameserver) listen(t *testing.T, in *netns.NS, addr string) {
	t.Helper()
	err := in.Do(func() error {
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		udp, tcp := &dns.Server{PacketConn: p, Handler: n}, &dns.Server{Listener: l, Handler: n}
		go func() { _ = udp.ActivateAndServe() }()
		go func() { _ = tcp.ActivateAndServe() }()
		t.Cleanup(func() { p.Close(); l.Close() })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (n *nameserver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name := q.Question[0].Name
	n.mu.Lock()
	if n.asked == nil {
		n.asked = map[string]int{}
	}
	n.asked[name]++
	f := n.zone[name+" "+dns.TypeToString[q.Question[0].Qtype]]
	if f == nil {
		f = n.zone[name]
	}
	n.mu.Unlock()
	if f == nil {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeNameError)
		_ = w.WriteMsg(m)
		return
	}
	f(w, q)
}

func (n *nameserver) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[dns.Fqdn(name)]
}

// set makes a name, or a name and a type, have an answer.
func (n *nameserver) set(name string, a answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, qtype, ok := strings.Cut(name, " ")
	name = dns.Fqdn(name)
	if ok {
		name += " " + qtype
	}
	n.zone[name] = a
}

// has makes a name have records: lines of a zone file.
func (n *nameserver) has(name string, lines ...string) { n.set(name, records(lines...)) }

func records(lines ...string) answer {
	var all []dns.RR
	for _, line := range lines {
		r, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, r := range all {
			if r.Header().Rrtype == dns.TypeSOA {
				m.Ns = append(m.Ns, dns.Copy(r))
			} else {
				m.Answer = append(m.Answer, dns.Copy(r))
			}
		}
		if w.RemoteAddr().Network() == "udp" {
			m.Truncate(1232)
		}
		_ = w.WriteMsg(m)
	}
}
