package netrules

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agbox/agbox/apis/netentry"
)

// Rules that are joined do to each packet what they did apart.
func TestJoinedRulesDecideAlike(t *testing.T) {
	t.Parallel()
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 31).Draw(t, "host"))})
	})
	one := rapid.Custom(func(t *rapid.T) Rule {
		r := Rule{
			Drop: rapid.Bool().Draw(t, "drop"), Record: rapid.Bool().Draw(t, "record"),
			Established: rapid.IntRange(0, 4).Draw(t, "established") == 0, Protocol: rapid.SampledFrom([]string{"", "tcp", "udp"}).Draw(t, "protocol"),
		}
		if r.Protocol != "" && rapid.Bool().Draw(t, "ports") {
			r.Ports = netentry.Ports{First: 80, Last: 81}
		}
		if rapid.IntRange(0, 3).Draw(t, "any") > 0 {
			blocks := rapid.SliceOfN(address, 1, 4).Draw(t, "to")
			for i, a := range blocks {
				r.To = append(r.To, Ranges([]netip.Prefix{netip.PrefixFrom(a, 27+i%6)})...)
			}
			r.To = join(r.To)
		}
		if rapid.IntRange(0, 7).Draw(t, "redirected") == 0 {
			r.Redirect = 53
		}
		return r
	})
	type packet struct {
		to          netip.Addr
		protocol    string
		port        uint16
		established bool
	}
	decide := func(rules []Rule, p packet) (drop, record bool, redirect uint16) {
		for _, r := range rules {
			if (!r.Established || p.established) && (r.To == nil || within(r.To, p.to)) && (r.Protocol == "" || r.Protocol == p.protocol) &&
				(r.Ports.First == 0 || r.Ports.First <= p.port && p.port <= r.Ports.Last) {
				return r.Drop, r.Record, r.Redirect
			}
		}
		return false, false, 0
	}
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(one, 0, 8).Draw(t, "rules")
		before := slices.Clone(rules)
		after := joined(rules)
		if len(after) > len(before) {
			t.Fatal("there are more")
		}
		for range 30 {
			p := packet{
				address.Draw(t, "to"), rapid.SampledFrom([]string{"tcp", "udp", "icmp"}).Draw(t, "of"), uint16(rapid.IntRange(79, 82).Draw(t, "port")), rapid.Bool().Draw(t, "known"),
			}
			d1, r1, p1 := decide(before, p)
			if d2, r2, p2 := decide(after, p); d1 != d2 || r1 != r2 || p1 != p2 {
				t.Fatalf("%v: %v became %v", p, before, after)
			}
		}
	})
}

// The mode internet costs a new connection one look at addresses, whatever the pool and what deny has without ports.
func TestDroppedAddressesAreOneRule(t *testing.T) {
	t.Parallel()
	rules := joined(slices.Concat([]Rule{passOwn, {Drop: true, Record: true, To: Ranges([]netip.Prefix{netip.MustParsePrefix("8.8.8.8/32")})}},
		others([]netip.Prefix{netip.MustParsePrefix("10.213.0.0/16")}), []Rule{{Drop: true, Record: true, To: notPublic}, passRest}))
	if len(rules) != 3 {
		t.Errorf("%d rules: %v", len(rules), rules)
	}
}
