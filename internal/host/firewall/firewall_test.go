package firewall_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// site is a host with two sandboxes, one of them with a service, and a world behind it that has public and private addresses.
type site struct {
	host, world, sandbox, service, other *netns.NS
	fw                                   *firewall.Firewall
}

// How long a test waits for packets that should not come, and for those that should.
const (
	short = 300 * time.Millisecond
	long  = 10 * time.Second
)

const bridge, otherBridge = "br-aaaaaaaaaaaa", "br-bbbbbbbbbbbb"

var facts = netrules.Facts{
	Bridge: bridge, Pool: []netip.Prefix{netip.MustParsePrefix("10.213.0.0/16"), netip.MustParsePrefix("fd13::/48")},
	Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
	Forwarder: 10053,
}

var worldAddresses = strings.Fields("1.1.1.1/32 8.8.8.8/32 10.0.0.2/32 10.0.0.9/32 100.64.0.1/32 169.254.169.254/32 172.16.0.1/32 192.168.7.7/32 " +
	"168.63.129.16/32 2606:4700::1111/128 fd00::2/128 fd00::9/128 64:ff9b::a00:9/128")

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{
		host: netns.New(t, "host"), world: netns.New(t, "world"), sandbox: netns.New(t, "sandbox"), service: netns.New(t, "service"), other: netns.New(t, "other"),
	}
	s.host.Sysctl(t, "net/ipv4/ip_forward", "1")
	s.host.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	s.host.IP(t, "link add uplink type veth peer name eth0 netns "+s.world.Path())
	s.host.IP(t, "link set uplink up")
	s.host.IP(t, "addr add 198.51.100.1/24 dev uplink")
	s.host.IP(t, "addr add 2606:4700:1::1/64 dev uplink nodad")
	s.host.IP(t, "route add default via 198.51.100.2")
	s.host.IP(t, "-6 route add default via 2606:4700:1::2")
	s.world.IP(t, "link set eth0 up")
	s.world.IP(t, "addr add 198.51.100.2/24 dev eth0")
	s.world.IP(t, "addr add 2606:4700:1::2/64 dev eth0 nodad")
	s.world.IP(t, "route add default via 198.51.100.1")
	s.world.IP(t, "-6 route add default via 2606:4700:1::1")
	for _, a := range worldAddresses {
		s.world.IP(t, "addr add "+a+" dev lo nodad")
	}
	for i, name := range []string{bridge, otherBridge} {
		s.host.IP(t, "link add "+name+" type bridge")
		s.host.IP(t, "link set "+name+" up")
		s.host.IP(t, fmt.Sprintf("addr add 10.213.0.%d/28 dev %s", i*16+1, name))
		s.host.IP(t, fmt.Sprintf("addr add fd13:0:0:%d::1/64 dev %s nodad", i, name))
	}
	s.attach(t, s.sandbox, bridge, 0, 2)
	s.attach(t, s.service, bridge, 0, 3)
	s.attach(t, s.other, otherBridge, 1, 2)
	for _, n := range []*netns.NS{s.host, s.world, s.sandbox, s.service, s.other} {
		n.Serve(t, 53, 80, 443, 8080)
	}
	s.fw = firewall.New(int(s.host.File.Fd()))
	s.awaitNeighbours(t)
	return s
}

func (s *site) attach(t testing.TB, n *netns.NS, bridge string, net, host int) {
	t.Helper()
	port := fmt.Sprintf("veth%d.%d", net, host)
	s.host.IP(t, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, n.Path()))
	s.host.IP(t, fmt.Sprintf("link set %s master %s up", port, bridge))
	n.IP(t, "link set eth0 up")
	n.IP(t, fmt.Sprintf("addr add 10.213.0.%d/28 dev eth0", net*16+host))
	n.IP(t, fmt.Sprintf("addr add fd13:0:0:%d::%d/64 dev eth0 nodad", net, host))
	n.IP(t, fmt.Sprintf("route add default via 10.213.0.%d", net*16+1))
	n.IP(t, fmt.Sprintf("-6 route add default via fd13:0:0:%d::1", net))
}

// awaitNeighbours waits until IPv6 works everywhere: links come up with a delay.
func (s *site) awaitNeighbours(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := s.sandbox.Dial("tcp", "[2606:4700::1111]:80", short)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the site does not come up: %v", err)
		}
	}
}

func (s *site) enforce(t testing.TB, mode string, allow, deny string) netrules.Rules {
	t.Helper()
	r, err := netrules.Make(mode, &agboxv1.NetworkSpec{Mode: mode, Allow: strings.Fields(allow), Deny: strings.Fields(deny)}, facts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fw.Enforce(r); err != nil {
		t.Fatal(err)
	}
	s.mustHold(t, r)
	s.sandbox.IP(t, "-6 neigh flush dev eth0") // its gateway has to be found again
	return r
}

func (s *site) mustHold(t testing.TB, r netrules.Rules) {
	t.Helper()
	if ok, err := s.fw.Holds(r); err != nil || !ok {
		t.Fatalf("the rules are not in force: %v, %v", ok, err)
	}
}

// path is one way through the site.
type path struct {
	from *netns.NS
	to   string
}

// check tries all paths at the same time.
func check(t *testing.T, want bool, paths []path) {
	t.Helper()
	wait := short
	if want {
		wait = long
	}
	var all sync.WaitGroup
	for _, p := range paths {
		all.Go(func() {
			if got := p.from.Reaches(t, p.to, wait); got != want {
				t.Errorf("%s to %s passes: %v", p.from.Name, p.to, got)
			}
		})
	}
	all.Wait()
}

func paths(from *netns.NS, targets ...string) (list []path) {
	for _, to := range targets {
		list = append(list, path{from, to})
	}
	return list
}

func TestPacketsOfEachMode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	public := paths(s.sandbox, "tcp 1.1.1.1:443", "udp 8.8.8.8:443", "tcp [2606:4700::1111]:443", "udp [2606:4700::1111]:53")
	dns := paths(s.sandbox, "udp 10.0.0.2:53", "tcp 10.0.0.2:53", "udp [fd00::2]:53")
	private := paths(s.sandbox, "tcp 10.0.0.2:80", "tcp 10.0.0.9:443", "udp 10.0.0.9:53", "tcp 100.64.0.1:80", "tcp 169.254.169.254:80", "tcp 172.16.0.1:80", "tcp 192.168.7.7:80",
		"tcp 168.63.129.16:80", "tcp 198.51.100.2:80", "tcp [fd00::9]:80", "udp [fd00::9]:53", "tcp [64:ff9b::a00:9]:80")
	ofHost := paths(s.sandbox, "tcp 10.213.0.1:80", "udp 10.213.0.1:53", "tcp 198.51.100.1:80", "tcp [fd13::1]:80", "tcp [2606:4700:1::1]:443", "tcp 10.213.0.17:80")
	others := append(paths(s.sandbox, "tcp 10.213.0.18:80", "udp 10.213.0.18:53", "tcp [fd13:0:0:1::2]:80"), paths(s.other, "tcp 10.213.0.2:80", "udp 10.213.0.3:53", "tcp [fd13::2]:80")...)
	own := append(paths(s.sandbox, "tcp 10.213.0.3:80", "udp 10.213.0.3:53", "tcp [fd13::3]:80"), paths(s.service, "tcp 10.213.0.2:80", "tcp [fd13::2]:80")...)
	inward := append(paths(s.host, "tcp 10.213.0.2:80", "tcp [fd13::2]:80"), paths(s.world, "tcp 10.213.0.2:80", "tcp [fd13::2]:80")...)
	free := paths(s.other, "tcp 10.0.0.9:443", "tcp 10.213.0.17:80", "tcp 1.1.1.1:80") // the other sandbox has no rules

	all := func(lists ...[]path) (list []path) {
		for _, l := range lists {
			list = append(list, l...)
		}
		return list
	}
	check(t, true, all(public, dns, private, ofHost, others, own, inward, free)) // each path can fail for no other reason

	s.enforce(t, "internet", "", "")
	check(t, true, all(public, dns, own, inward, free))
	check(t, false, all(private, ofHost, others))

	s.enforce(t, "internet", "10.0.0.9:443/tcp [fd00::9]:53-80 192.168.0.0/16 host:8080", "8.8.8.8 [2606:4700::/32]:443/tcp")
	check(t, true, all(paths(s.sandbox, "tcp 10.0.0.9:443", "tcp [fd00::9]:80", "udp [fd00::9]:53", "tcp 192.168.7.7:80", "tcp 10.213.0.1:8080", "udp 198.51.100.1:8080",
		"tcp [fd13::1]:8080", "tcp 1.1.1.1:443", "udp [2606:4700::1111]:53"), dns, own, inward, free))
	check(t, false, all(paths(s.sandbox, "udp 10.0.0.9:443", "tcp 10.0.0.9:80", "tcp [fd00::9]:443", "tcp 10.213.0.1:80", "udp 8.8.8.8:443", "tcp [2606:4700::1111]:443"), others))

	s.enforce(t, "internet", "0.0.0.0/0 ::/0", "")
	check(t, true, all(public, private, own, free))
	check(t, false, all(ofHost, others))

	s.enforce(t, "internal", "10.0.0.9", "")
	check(t, true, all(paths(s.sandbox, "tcp 10.0.0.9:443", "udp 10.0.0.9:53"), own, inward, free))
	check(t, false, all(public, dns, ofHost, others, paths(s.sandbox, "tcp 192.168.7.7:80")))

	s.enforce(t, "none", "", "")
	check(t, true, free)
	check(t, false, all(public, dns, private, ofHost, others, own, inward))

	s.enforce(t, "open", "", "169.254.0.0/16 host:80/tcp")
	check(t, true, all(public, dns, own, others, inward, free, paths(s.sandbox, "tcp 10.0.0.9:443", "udp 10.213.0.1:53")))
	check(t, false, paths(s.sandbox, "tcp 169.254.169.254:80", "tcp 10.213.0.1:80", "tcp [fd13::1]:80"))

	s.enforce(t, "open", "", "")
	check(t, true, all(public, dns, private, ofHost, others, own, inward, free))
}

func TestConnectionsThatPassedBefore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internet", "", "")
	out, err := s.sandbox.Dial("tcp", "1.1.1.1:80", long)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := s.world.Dial("tcp", "10.213.0.2:80", long)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s.enforce(t, "internal", "", "")
	if !netns.Echoes(t, out, long) || !netns.Echoes(t, in, long) {
		t.Error("an established connection was cut")
	}
	s.enforce(t, "none", "", "")
	if netns.Echoes(t, out, short) || netns.Echoes(t, in, short) {
		t.Error("none lets an established connection pass")
	}
}

// While rules are replaced by others, no packet passes that both block.
func TestReplacementIsOneStep(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	got := make(chan string, 1)
	var listener net.PacketConn
	err := s.world.Do(func() (err error) {
		listener, err = net.ListenPacket("udp", "10.0.0.9:9999")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		b := make([]byte, 16)
		for {
			n, _, err := listener.ReadFrom(b)
			if err != nil {
				return
			}
			select {
			case got <- string(b[:n]):
			default:
			}
		}
	}()
	flood, err := s.sandbox.Dial("udp", "10.0.0.9:9999", long)
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	_, _ = flood.Write([]byte("before"))
	select {
	case <-got: // the way is open without rules
	case <-time.After(5 * time.Second):
		t.Fatal("nothing arrives even without rules")
	}
	// No answer comes, so the flow is never an established connection.
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf("10.%d.%d.1:80-81", 1+i/200, i%200))
	}
	s.enforce(t, "internal", "", "")
	for len(got) > 0 {
		<-got
	}
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				stopped <- n
				return
			default:
				_, _ = flood.Write([]byte("leak"))
				if n++; n%20 == 0 {
					time.Sleep(100 * time.Microsecond) // leaves time to the replacements
				}
			}
		}
	}()
	for range 5 {
		s.enforce(t, "internet", strings.Join(many, " "), "")
		s.enforce(t, "internal", "", "")
		s.enforce(t, "internal", "10.0.0.8", strings.Join(many, " "))
		s.enforce(t, "none", "", "")
	}
	close(stop)
	n := <-stopped
	time.Sleep(short) // what is under way arrives
	select {
	case what := <-got:
		t.Errorf("%q passed", what)
	default:
		t.Logf("%d packets dropped", n)
	}
	if n < 1000 {
		t.Errorf("only %d packets were sent", n)
	}
}

func TestRulesOfOthersStay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	foreign := c.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{Name: "from-" + bridge, Table: foreign})
	c.AddRule(&nftables.Rule{Table: foreign, Chain: chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
	if err := c.AddSet(&nftables.Set{Table: foreign, Name: bridge + ".4.x", KeyType: nftables.TypeIPAddr}, []nftables.SetElement{{Key: []byte{1, 2, 3, 4}}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	mine := s.enforce(t, "internet", "10.0.0.9", "")
	neighbour, err := netrules.Make("none", nil, netrules.Facts{Bridge: otherBridge})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fw.Enforce(neighbour); err != nil {
		t.Fatal(err)
	}
	s.mustHold(t, mine)
	if got, err := s.fw.Bridges(); err != nil || strings.Join(got, " ") != bridge+" "+otherBridge {
		t.Errorf("bridges %v, %v", got, err)
	}
	if err := s.fw.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	if err := s.fw.Remove(bridge); err != nil {
		t.Errorf("a second removal: %v", err)
	}
	s.mustHold(t, neighbour)
	s.mustHold(t, netrules.Rules{Bridge: bridge})
	check(t, true, paths(s.sandbox, "tcp 10.0.0.9:80"))
	check(t, false, paths(s.other, "tcp 1.1.1.1:80"))
	for range 2 { // the second finds nothing
		if err := s.fw.Drop(); err != nil {
			t.Fatal(err)
		}
	}
	check(t, true, paths(s.other, "tcp 1.1.1.1:80"))
	rules, err := c.GetRules(foreign, chain)
	if err != nil || len(rules) != 1 {
		t.Errorf("foreign rules: %v, %v", rules, err)
	}
	if sets, err := c.GetSets(foreign); err != nil || len(sets) != 1 {
		t.Errorf("foreign sets: %v, %v", sets, err)
	}
}

// Whatever others change in the table is seen and repaired.
func TestRepairs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	blocked, open := paths(s.sandbox, "tcp 192.168.7.7:80", "tcp 10.213.0.1:80", "tcp 10.213.0.18:80"), paths(s.sandbox, "tcp 1.1.1.1:80", "tcp 10.0.0.9:80", "tcp 10.213.0.3:80")
	want := s.enforce(t, "internet", "10.0.0.9", "8.8.8.8")
	table := &nftables.Table{Name: firewall.TableName, Family: nftables.TableFamilyINet}
	from := &nftables.Chain{Name: "from-" + bridge, Table: table}
	rulesOf := func(t *testing.T, c *nftables.Conn, chain *nftables.Chain) []*nftables.Rule {
		t.Helper()
		rules, err := c.GetRules(table, chain)
		if err != nil || len(rules) == 0 {
			t.Fatalf("%v, %v", rules, err)
		}
		return rules
	}
	drop := nftables.ChainPolicyDrop
	for name, change := range map[string]func(t *testing.T, c *nftables.Conn) error{
		"everything flushed": func(_ *testing.T, c *nftables.Conn) error { c.FlushRuleset(); return nil },
		"the table flushed":  func(_ *testing.T, c *nftables.Conn) error { c.FlushTable(table); return nil },
		"a chain flushed":    func(_ *testing.T, c *nftables.Conn) error { c.FlushChain(from); return nil },
		"a base chain flushed": func(_ *testing.T, c *nftables.Conn) error {
			c.FlushChain(&nftables.Chain{Name: "forward", Table: table})
			return nil
		},
		"the last rule deleted": func(t *testing.T, c *nftables.Conn) error { r := rulesOf(t, c, from); return c.DelRule(r[len(r)-1]) },
		"a rule deleted for input": func(t *testing.T, c *nftables.Conn) error {
			r := rulesOf(t, c, &nftables.Chain{Name: "input-" + bridge, Table: table})
			return c.DelRule(r[len(r)-1])
		},
		"a rule put in front": func(_ *testing.T, c *nftables.Conn) error {
			c.InsertRule(&nftables.Rule{Table: table, Chain: from, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
			return nil
		},
		"a rule put in front of all bridges": func(_ *testing.T, c *nftables.Conn) error {
			c.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "forward", Table: table}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
			return nil
		},
		"a map flushed": func(_ *testing.T, c *nftables.Conn) error {
			c.FlushSet(&nftables.Set{Table: table, Name: "from"})
			return nil
		},
		"another verdict in a map": func(_ *testing.T, c *nftables.Conn) error {
			m := &nftables.Set{Table: table, Name: "from", IsMap: true, KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict}
			key := append([]byte(bridge), 0)
			if err := c.SetDeleteElements(m, []nftables.SetElement{{Key: key}}); err != nil {
				return err
			}
			return c.SetAddElements(m, []nftables.SetElement{{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictAccept}}})
		},
		"sets with other elements": func(t *testing.T, c *nftables.Conn) error {
			sets, err := c.GetSets(table)
			if err != nil {
				return err
			}
			for _, set := range sets {
				if strings.HasPrefix(set.Name, bridge) {
					c.FlushSet(set)
				}
			}
			return nil
		},
		"a chain that drops by policy": func(_ *testing.T, c *nftables.Conn) error {
			c.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
				Priority: nftables.ChainPriorityRef(-5), Policy: &drop})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
			if err != nil {
				t.Fatal(err)
			}
			if err := change(t, c); err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
			if ok, err := s.fw.Holds(want); err != nil || ok {
				t.Errorf("went unseen: %v, %v", ok, err)
			}
			if err := s.fw.Enforce(want); err != nil {
				t.Fatal(err)
			}
			s.mustHold(t, want)
			check(t, true, open)
			check(t, false, blocked)
		})
	}
}

// A kill between the changes of an Enforce leaves a set that no rule names.
func TestSetsThatAreLeftOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	table := &nftables.Table{Name: firewall.TableName, Family: nftables.TableFamilyINet}
	leave := func(name string) {
		if err := c.AddSet(&nftables.Set{Table: table, Name: name, KeyType: nftables.TypeIPAddr}, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (names []string) {
		sets, err := c.GetSets(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range sets {
			if !set.IsMap && !isRecord(set.Name) {
				names = append(names, set.Name)
			}
		}
		return names
	}
	s.enforce(t, "internet", "", "")
	before := len(names())
	leave(bridge + ".left")
	leave(bridge + "b.other")                  // of a bridge whose name begins alike
	s.enforce(t, "internet", "", "8.8.8.0/24") // in other sets than before
	if after := names(); len(after) != before+1 || slices.Contains(after, bridge+".left") {
		t.Errorf("%d sets before, now %q", before, after)
	}
	leave(bridge + ".left")
	if err := s.fw.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	if after := names(); !slices.Equal(after, []string{bridge + "b.other"}) {
		t.Errorf("after the removal: %q", after)
	}
}

func TestHoldsTellsRulesApart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enforce(t, "internet", "10.0.0.9:80", "")
	for _, other := range []*agboxv1.NetworkSpec{
		{Mode: "internet", Allow: []string{"10.0.0.8:80"}}, {Mode: "internet", Allow: []string{"10.0.0.9:81"}}, {Mode: "internet", Allow: []string{"10.0.0.9:80/tcp"}},
		{Mode: "internet", Deny: []string{"10.0.0.9:80"}}, {Mode: "internal", Allow: []string{"10.0.0.9:80"}}, {Mode: "none"}, {Mode: "open"},
	} {
		b, err := netrules.Make(other.GetMode(), other, facts)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := s.fw.Holds(b); err != nil || ok {
			t.Errorf("%v: %v, %v", other, ok, err)
		}
	}
	s.mustHold(t, a)
}

func TestTenThousandEntries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var v4, v6 []string
	for i := range 10000 {
		v4 = append(v4, fmt.Sprintf("10.%d.%d.0/24", 1+i/250, i%125*2))
		v6 = append(v6, fmt.Sprintf("2001:db9:%x:%x::/64", i/100, i%100*2))
	}
	begun := time.Now()
	s.enforce(t, "internal", strings.Join(append(v6, "10.0.0.9"), " "), strings.Join(v4, " "))
	t.Logf("put into force and observed in %s", time.Since(begun))
	check(t, true, paths(s.sandbox, "tcp 10.0.0.9:80"))
	check(t, false, paths(s.sandbox, "tcp 10.0.0.2:80"))
}

// Several daemons may share the table, each with bridges of its own.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			fw := firewall.New(int(s.host.File.Fd()))
			for j := range 20 {
				r, err := netrules.Make([]string{"internet", "internal", "none"}[j%3], nil, netrules.Facts{Bridge: fmt.Sprintf("br-%d", i), Pool: facts.Pool})
				if err != nil {
					t.Error(err)
					return
				}
				deadline := time.Now().Add(20 * time.Second)
				for {
					if err = fw.Enforce(r); err == nil || time.Now().After(deadline) {
						break
					}
				}
				if ok, holdErr := fw.Holds(r); err != nil || holdErr != nil || !ok {
					t.Errorf("bridge %d, turn %d: %v, %v, %v", i, j, ok, err, holdErr)
				}
			}
			if err := fw.Remove(fmt.Sprintf("br-%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := s.fw.Bridges(); err != nil || len(got) != 0 {
		t.Errorf("left: %v, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 2 {
		if err := s.fw.Check(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "a-name-of-16-chars"} {
		if err := s.fw.Enforce(netrules.Rules{Bridge: name}); err == nil {
			t.Errorf("%q is no bridge", name)
		}
	}
	if err := firewall.New(1 << 20).Check(); err == nil { // a file that is not open
		t.Error("a namespace that does not exist")
	}
}
