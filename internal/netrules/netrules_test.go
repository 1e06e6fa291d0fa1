package netrules_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/netrules"
)

var facts = netrules.Facts{
	Bridge:    "br-1",
	Pool:      []netip.Prefix{netip.MustParsePrefix("10.213.0.0/16")},
	Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("127.0.0.53")},
	Forwarder: 10053,
}

// packet is a new connection, unless it says otherwise.
type packet struct {
	hook        string // from, to, input, output
	src, dst    string
	protocol    string
	port        uint16
	own         bool
	established bool
	neighbour   bool
	redirected  bool
	resolved    bool // its destination is in every set of names
}

// passes is what a packet filter does with the rules.
func passes(r netrules.Rules, p packet) bool {
	list := map[string][]netrules.Rule{"from": r.From, "to": r.To, "input": r.Input, "output": r.Output, "redirect": r.Redirect}[p.hook]
	for _, rule := range list {
		if matches(rule, p) {
			return !rule.Drop
		}
	}
	return true
}

func matches(r netrules.Rule, p packet) bool {
	return (!r.OwnBridge || p.own) && (!r.Established || p.established) && (!r.Neighbour || p.neighbour) &&
		in(r.To, p.dst) && in(r.From, p.src) && (r.Protocol == "" || r.Protocol == p.protocol) &&
		(r.Names == "" || p.resolved) && (!r.Redirected || p.redirected) &&
		(r.Ports.First == 0 || r.Ports.First <= p.port && p.port <= r.Ports.Last)
}

// redirected returns the port that a packet goes to instead; 0: it goes on.
func redirected(r netrules.Rules, p packet) uint16 {
	for _, rule := range r.Redirect {
		if matches(rule, p) {
			return rule.Redirect
		}
	}
	return 0
}

func in(ranges []netrules.Range, addr string) bool {
	return ranges == nil || addr != "" && slices.ContainsFunc(ranges, func(r netrules.Range) bool {
		a := netip.MustParseAddr(addr)
		return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
	})
}

func to(dst string) packet {
	return packet{hook: "from", src: "10.213.0.2", dst: dst, protocol: "tcp", port: 443}
}

func resolvedTo(dst string) packet {
	p := to(dst)
	p.resolved = true
	return p
}

func at(p packet, protocol string, port uint16) packet {
	p.protocol, p.port = protocol, port
	return p
}

func host(protocol string, port uint16) packet {
	return packet{hook: "input", src: "10.213.0.2", dst: "10.213.0.1", protocol: protocol, port: port}
}

func TestMake(t *testing.T) {
	policy := func(mode string, allow, deny string) *agboxv1.NetworkSpec {
		return &agboxv1.NetworkSpec{Mode: mode, Allow: strings.Fields(allow), Deny: strings.Fields(deny)}
	}
	public := []packet{to("1.1.1.1"), to("93.184.216.34"), to("2606:4700::1111"), to("64:ff9b::1.1.1.1"), at(to("1.1.1.1"), "udp", 53), at(to("8.8.8.8"), "icmp", 0)}
	notPublic := []packet{
		to("0.0.0.1"), to("10.0.0.1"), to("10.255.255.255"), to("100.64.0.1"), to("100.127.255.255"), to("100.100.100.200"), to("127.0.0.1"), to("169.254.169.254"),
		to("172.16.0.1"), to("172.31.255.255"), to("192.0.0.192"), to("192.0.2.1"), to("192.168.1.1"), to("198.18.0.1"), to("198.19.255.255"),
		to("198.51.100.1"), to("203.0.113.1"), to("224.0.0.1"), to("239.255.255.255"), to("240.0.0.1"), to("255.255.255.255"), to("168.63.129.16"),
		to("::1"), to("::"), to("::10.0.0.1"), to("::ffff:10.0.0.1"), to("64:ff9b::10.0.0.1"), to("64:ff9b::169.254.169.254"), to("64:ff9b:1::1"), to("100::1"), to("2001::1"),
		to("2001:db8::1"), to("2002:a00:1::1"), to("fc00::1"), to("fd00:ec2::254"), to("fdff::1"), to("fe80::1"), to("ff02::1"),
	}
	edges := []packet{to("9.255.255.255"), to("11.0.0.0"), to("100.63.255.255"), to("100.128.0.0"), to("172.15.255.255"), to("172.32.0.0"), to("192.167.255.255"),
		to("192.169.0.0"), to("223.255.255.255"), to("168.63.129.15"), to("168.63.129.17"), to("2001:200::1"), to("2003::1")}
	dns := []packet{at(to("10.0.0.2"), "udp", 53), at(to("10.0.0.2"), "tcp", 53), at(to("fd00::2"), "udp", 53)}
	ofHost := []packet{host("tcp", 22), host("udp", 53), host("icmp", 0), {hook: "input", dst: "203.0.113.7", protocol: "tcp", port: 443}, {hook: "input", dst: "2606:4700::7", protocol: "tcp", port: 443}}
	neighbours := []packet{{hook: "input", dst: "fe80::1", protocol: "icmpv6", neighbour: true}}
	others := []packet{to("10.213.0.18"), {hook: "to", src: "10.213.0.18", dst: "10.213.0.2", protocol: "tcp", port: 80}}
	own := []packet{{hook: "from", src: "10.213.0.2", dst: "10.213.0.3", own: true}, {hook: "to", src: "10.213.0.2", dst: "10.213.0.3", own: true}}
	established := []packet{{hook: "from", dst: "10.0.0.9", established: true}, {hook: "to", src: "10.213.0.18", established: true}, {hook: "input", dst: "10.213.0.1", established: true}}
	inside := []packet{{hook: "output", dst: "10.213.0.2"}, {hook: "to", src: "198.51.100.4", dst: "10.213.0.2", protocol: "tcp", port: 80}} // published ports

	for _, tc := range []struct {
		name          string
		policy        *agboxv1.NetworkSpec
		pass, dropped [][]packet
	}{
		{"open lets everything pass", policy("open", "", ""), [][]packet{public, notPublic, ofHost, others, own, established, inside}, nil},
		{"internet is the public internet, DNS, and the sandbox itself", policy("internet", "", ""),
			[][]packet{public, edges, dns, own, established, inside, neighbours}, [][]packet{notPublic, ofHost, others}},
		{"the engine's resolvers have port 53 only", policy("internet", "", ""), nil,
			[][]packet{{to("10.0.0.2"), at(to("10.0.0.2"), "udp", 54), at(to("10.0.0.3"), "udp", 53), at(to("127.0.0.53"), "udp", 53)}}},
		{"a resolver that the host itself is", policy("internet", "", ""),
			[][]packet{{packet{hook: "input", dst: "10.0.0.2", protocol: "udp", port: 53}}}, [][]packet{{packet{hook: "input", dst: "10.0.0.2", protocol: "udp", port: 54}}}},
		{"internet with private addresses", policy("internet", "10.0.0.0/24 10.1.0.5:5432/tcp [fd00::/64]:80-90", ""),
			[][]packet{public, {to("10.0.0.9"), at(to("10.0.0.9"), "icmp", 0), at(to("10.1.0.5"), "tcp", 5432), at(to("fd00::1"), "tcp", 80), at(to("fd00::1"), "udp", 90)}},
			[][]packet{ofHost, others, {to("10.0.1.0"), to("10.1.0.5"), at(to("10.1.0.5"), "udp", 5432), at(to("fd00::1"), "tcp", 91), at(to("fd00::1"), "icmpv6", 0)}}},
		{"everything allowed opens neither other sandboxes nor the host", policy("internet", "0.0.0.0/0 ::/0", ""), [][]packet{public, notPublic}, [][]packet{others, ofHost}},
		{"a port of the host", policy("internet", "host:8080 host:9000-9001/udp", ""),
			[][]packet{{host("tcp", 8080), host("udp", 8080), host("udp", 9001), {hook: "input", dst: "203.0.113.7", protocol: "tcp", port: 8080}}},
			[][]packet{ofHost, {host("tcp", 9001), host("tcp", 8081), at(to("10.0.0.9"), "tcp", 8080)}}},
		{"an allowed address that the host has opens no port of it", policy("internet", "10.213.0.1", ""), nil, [][]packet{ofHost}},
		{"internet without some of it", policy("internet", "10.0.0.0/8", "1.1.1.0/24 10.0.0.5 8.8.8.8:53 host:8080"),
			[][]packet{{to("1.1.2.1"), to("10.0.0.4"), to("8.8.8.8")}, dns, own, established},
			[][]packet{{to("1.1.1.1"), at(to("1.1.1.1"), "icmp", 0), to("10.0.0.5"), at(to("8.8.8.8"), "udp", 53), at(to("8.8.8.8"), "tcp", 53)}}},
		{"deny beats allow", policy("internet", "10.0.0.5 host:8080", "10.0.0.0/8 host:8000-9000"), nil, [][]packet{{to("10.0.0.5"), host("tcp", 8080)}}},
		{"internal is the sandbox itself", policy("internal", "", ""), [][]packet{own, established, inside, neighbours}, [][]packet{public, notPublic, edges, dns, ofHost, others}},
		{"internal with entries", policy("internal", "1.1.1.1 10.0.0.2:53/udp host:8080", "1.1.1.1:443"),
			[][]packet{own, {at(to("1.1.1.1"), "tcp", 80), at(to("10.0.0.2"), "udp", 53), host("tcp", 8080)}},
			[][]packet{notPublic, others, ofHost, {to("1.1.1.1"), to("1.1.1.2")}}},
		{"internal with names", policy("internal", "*.github.com:443/tcp 1.1.1.1 host:8080", "8.8.8.8 10.0.0.0/24"),
			[][]packet{own, established, {resolvedTo("93.184.216.34"), to("1.1.1.1"), host("tcp", 8080), {hook: "input", protocol: "udp", port: 10053, redirected: true}, {hook: "input", protocol: "tcp", port: 10053, redirected: true}}},
			[][]packet{notPublic, others, ofHost, dns, {to("93.184.216.34"), at(resolvedTo("93.184.216.34"), "tcp", 80), at(resolvedTo("93.184.216.34"), "udp", 443), resolvedTo("8.8.8.8"),
				resolvedTo("10.0.0.9"), resolvedTo("10.213.0.18"), at(to("1.1.1.1"), "udp", 53), at(to("1.1.1.1"), "tcp", 853), at(to("1.1.1.1"), "udp", 853),
				{hook: "from", protocol: "udp", port: 53, established: true}, {hook: "input", protocol: "udp", port: 10053}, {hook: "input", protocol: "tcp", port: 10053},
				{hook: "input", protocol: "tcp", port: 10054, redirected: true}}}},
		{"verified names are not forwarded", verified(policy("internal", "a.example b.example:80-90 1.1.1.1", "8.8.8.8")),
			[][]packet{own, established, {resolvedTo("1.1.1.1"), {hook: "input", protocol: "tcp", port: 10053, redirected: true}}},
			[][]packet{{to("93.184.216.34"), resolvedTo("93.184.216.34"), at(resolvedTo("93.184.216.34"), "udp", 443), at(resolvedTo("93.184.216.34"), "icmp", 0), {hook: "input", protocol: "tcp", port: 10053}}}},
		{"names at all ports", policy("internal", "a.example b.example:80-90", ""), [][]packet{{at(resolvedTo("1.1.1.1"), "icmp", 0), at(resolvedTo("1.1.1.1"), "udp", 81)}},
			[][]packet{public, {at(resolvedTo("1.1.1.1"), "tcp", 53)}}},
		{"internet without some names", policy("internet", "10.0.0.0/24", "*.example"), [][]packet{{to("1.1.1.1"), at(to("10.0.0.9"), "udp", 123)}, own, established},
			[][]packet{dns, ofHost, others, {at(to("1.1.1.1"), "udp", 53), at(to("8.8.8.8"), "tcp", 53), at(to("1.1.1.1"), "tcp", 853)}}},
		{"none drops all, established connections and published ports too", policy("none", "", ""), nil, [][]packet{public, notPublic, dns, ofHost, others, own, established, inside, neighbours}},
		{"open without some of it", policy("open", "", "169.254.0.0/16 host:2375"),
			[][]packet{public, others, own, established, inside, neighbours, {to("10.0.0.5"), host("tcp", 22)}},
			[][]packet{{to("169.254.169.254"), host("tcp", 2375), {hook: "input", dst: "169.254.1.1", protocol: "tcp", port: 80}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules, err := netrules.Make(tc.policy.GetMode(), tc.policy, facts)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range slices.Concat(tc.pass...) {
				if !passes(rules, p) {
					t.Errorf("dropped: %+v", p)
				}
			}
			for _, p := range slices.Concat(tc.dropped...) {
				if passes(rules, p) {
					t.Errorf("passed: %+v", p)
				}
			}
		})
	}
}

func verified(p *agboxv1.NetworkSpec) *agboxv1.NetworkSpec {
	p.VerifyNames = true
	return p
}

// Connections to addresses of names go to the forwarder, unless entries for the address decide, or for the port.
func TestVerifiedNamesAreRedirected(t *testing.T) {
	p := verified(&agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"a.example:80-90", "b.example:443/tcp", "1.1.1.1:85"}, Deny: []string{"9.9.9.0/24"}})
	r, err := netrules.Make(p.GetMode(), p, facts)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		packet packet
		to     uint16
	}{
		{at(resolvedTo("93.184.216.34"), "tcp", 80), 10053}, {at(resolvedTo("2606:4700::1"), "tcp", 443), 10053}, {at(resolvedTo("93.184.216.34"), "tcp", 91), 0},
		{at(resolvedTo("93.184.216.34"), "udp", 443), 0}, {at(to("93.184.216.34"), "tcp", 443), 0}, {at(resolvedTo("1.1.1.1"), "tcp", 85), 0},
		{at(resolvedTo("1.1.1.1"), "tcp", 86), 10053}, {at(resolvedTo("9.9.9.9"), "tcp", 443), 0}, {at(resolvedTo("10.213.0.18"), "tcp", 443), 0},
		{at(to("8.8.8.8"), "tcp", 53), 10053}, {at(to("8.8.8.8"), "udp", 53), 10053}, {at(resolvedTo("93.184.216.34"), "tcp", 853), 0},
	} {
		if got := redirected(r, tc.packet); got != tc.to {
			t.Errorf("%+v goes to port %d, want %d", tc.packet, got, tc.to)
		}
	}
}

func TestMakeRefuses(t *testing.T) {
	for _, p := range []*agboxv1.NetworkSpec{{Mode: ""}, {Mode: "Internet"}, {Mode: "internet", Allow: []string{"x.org"}}, {Mode: "open", Deny: []string{"10.0.0.1/8"}}} {
		if r, err := netrules.Make(p.GetMode(), p, facts); err == nil {
			t.Errorf("%v: %+v", p, r)
		}
	}
}

// The order of entries, duplicates and blocks inside others make no difference, so that no pass replaces rules because of them.
func TestTheSamePolicyGivesTheSameRules(t *testing.T) {
	a, errA := netrules.Make("internal", &agboxv1.NetworkSpec{Allow: []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.0.7", "1.1.1.1:443/tcp", "host:80"}}, facts)
	b, errB := netrules.Make("internal", &agboxv1.NetworkSpec{Allow: []string{"host:80/udp", "1.1.1.1:443/tcp", "10.0.0.0/23", "host:80/tcp", "10.0.0.0/23"}}, facts)
	if errA != nil || errB != nil || !a.Equal(b) {
		t.Errorf("%v, %v\n%+v\n%+v", errA, errB, a, b)
	}
	for name, other := range map[string]*agboxv1.NetworkSpec{
		"an address": {Allow: []string{"10.0.0.0/23", "1.1.1.2:443/tcp", "host:80"}}, "a port": {Allow: []string{"10.0.0.0/23", "1.1.1.1:444/tcp", "host:80"}},
		"a protocol": {Allow: []string{"10.0.0.0/23", "1.1.1.1:443/udp", "host:80"}}, "less": {Allow: []string{"10.0.0.0/23", "1.1.1.1:443/tcp"}},
	} {
		if c, err := netrules.Make("internal", other, facts); err != nil || a.Equal(c) {
			t.Errorf("%s: equal, %v", name, err)
		}
	}
	if elsewhere, _ := netrules.Make("none", nil, netrules.Facts{Bridge: "br-2"}); elsewhere.Equal(netrules.Rules{Bridge: "br-1", From: elsewhere.From, To: elsewhere.To, Input: elsewhere.Input, Output: elsewhere.Output}) {
		t.Error("rules of two bridges are equal")
	}
}

func TestThousandsOfEntriesAreFewRules(t *testing.T) {
	p := &agboxv1.NetworkSpec{Mode: "internal"}
	for i := range 10000 {
		p.Allow = append(p.Allow, fmt.Sprintf("10.%d.%d.0/24:443/tcp", i/100, i%100*2))
	}
	r, err := netrules.Make(p.GetMode(), p, facts)
	if err != nil || len(r.From) > 6 {
		t.Errorf("%d rules, %v", len(r.From), err)
	}
}

// Ranges covers exactly what the blocks cover, in sorted ranges with gaps between.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.Custom(func(t *rapid.T) netip.Prefix {
			b := [4]byte{10, 0, 0, rapid.Byte().Draw(t, "byte")}
			a := netip.AddrFrom4(b)
			if rapid.Bool().Draw(t, "v6") {
				a = netip.AddrFrom16([16]byte{0xfd, 15: b[3]})
			}
			return netip.PrefixFrom(a, a.BitLen()-rapid.IntRange(0, 8).Draw(t, "host bits")).Masked()
		})
		blocks := rapid.SliceOf(block).Draw(t, "blocks")
		ranges := netrules.Ranges(blocks)
		for i := 1; i < len(ranges); i++ {
			a, b := ranges[i-1], ranges[i]
			if !a.Last.Less(b.First) || a.Last.Next() == b.First {
				t.Fatalf("%v and %v", a, b)
			}
		}
		for i := range 512 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if i > 255 {
				a = netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
			}
			want := slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(a) })
			if got := len(ranges) > 0 && in(ranges, a.String()); got != want {
				t.Fatalf("%v: %v, want %v", a, got, want)
			}
		}
	})
	if r := netrules.Ranges([]netip.Prefix{netip.MustParsePrefix("128.0.0.0/1"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/1")}); len(r) != 2 {
		t.Errorf("whole families: %v", r)
	}
}

// What a sandbox sends is recorded, unless it stays in the sandbox's network, belongs to a connection that exists, or asks the DNS servers of the mode
// internet. What others send to it is not.
func TestRulesThatRecord(t *testing.T) {
	for mode, policy := range map[string]*agboxv1.NetworkSpec{
		netrules.Internet: {Allow: []string{"10.0.0.9", "host:80"}, Deny: []string{"8.8.8.8"}},
		netrules.Internal: {Allow: []string{"10.0.0.9", "a.example:443"}},
		netrules.None:     nil, netrules.Open: {Deny: []string{"8.8.8.8"}},
	} {
		r, err := netrules.Make(mode, policy, netrules.Facts{
			Bridge: "br-0", Pool: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Forwarder: 10053,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range slices.Concat(r.To, r.Output, r.Redirect) {
			if rule.Record {
				t.Errorf("%s: %+v records", mode, rule)
			}
		}
		for _, list := range [][]netrules.Rule{r.From, r.Input} {
			if !list[len(list)-1].Record {
				t.Errorf("%s: the last rule of %+v does not record", mode, list)
			}
			for _, rule := range list {
				resolver := !rule.Drop && len(rule.To) == 1 && rule.To[0].First == netip.MustParseAddr("10.0.0.2")
				if want := !rule.OwnBridge && !rule.Established && !rule.Neighbour && !rule.Redirected && !resolver; rule.Record != want {
					t.Errorf("%s: %+v records: %v", mode, rule, rule.Record)
				}
			}
		}
	}
}
