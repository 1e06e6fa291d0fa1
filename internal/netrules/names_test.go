package netrules_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/netrules"
)

func spec(mode, allow, deny string) *agboxv1.NetworkSpec {
	return &agboxv1.NetworkSpec{Mode: mode, Allow: strings.Fields(allow), Deny: strings.Fields(deny)}
}

func TestNamesOf(t *testing.T) {
	for _, tc := range []struct {
		name               string
		policy             *agboxv1.NetworkSpec
		unfiltered         bool
		answered, refused  string
		permitted, private string
	}{
		{name: "no policy", policy: nil, unfiltered: true},
		{name: "addresses alone", policy: spec("internal", "10.0.0.1 host:80", "1.1.1.1"), unfiltered: true},
		{name: "denied names where none is allowed", policy: spec("internal", "", "a.example"), unfiltered: true},
		{name: "one name", policy: spec("internal", "api.github.com", ""),
			answered: "api.github.com", refused: "github.com x.api.github.com xapi.github.com api.github.com.x com", permitted: "1.1.1.1 2606:4700::1",
			private: "10.0.0.1 127.0.0.1 169.254.169.254 ::1 fd00::1 fe80::1 ::ffff:10.0.0.1 ::ffff:1.1.1.1 64:ff9b::a00:1 0.0.0.0"},
		{name: "all names below one", policy: spec("internal", "*.github.com:443", ""), answered: "api.github.com a.b.c.github.com",
			refused: `github.com xgithub.com evil\.github.com api.evil\.github.com github.com.evil.example`},
		{name: "denied among allowed", policy: spec("internal", "*.github.com github.com", "*.gist.github.com api.github.com"),
			answered: "github.com gist.github.com x.github.com", refused: "api.github.com x.gist.github.com y.x.gist.github.com"},
		{name: "all but some", policy: spec("internet", "", "*.tracker.example"), answered: `a.example tracker.example localhost xtracker.example a\.b.example`,
			refused: `x.tracker.example a.b.tracker.example x\.y.tracker.example`, private: "10.0.0.1"},
		{name: "private addresses that allow names", policy: spec("internal", "a.example 10.0.0.0/24 [fd00::1]:80", ""), answered: "a.example",
			permitted: "10.0.0.255 fd00::1", private: "10.0.1.0 fd00::2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, filtered, err := netrules.NamesOf(tc.policy.GetMode(), tc.policy, nil)
			if err != nil || filtered == tc.unfiltered {
				t.Fatal(filtered, err)
			}
			if !filtered {
				return
			}
			for _, name := range strings.Fields(tc.answered) {
				if _, ok := n.Answers(name); !ok {
					t.Errorf("%s is refused", name)
				}
			}
			for _, name := range strings.Fields(tc.refused) {
				if _, ok := n.Answers(name); ok {
					t.Errorf("%s is answered", name)
				}
			}
			for _, a := range strings.Fields(tc.permitted) {
				if !n.Permits(netip.MustParseAddr(a), false) {
					t.Errorf("%s is not permitted", a)
				}
			}
			if n.Permits(netip.MustParseAddr("1.1.1.1"), true) || n.Permits(netip.Addr{}, false) {
				t.Error("an address of the host is permitted, or none")
			}
			for _, a := range strings.Fields(tc.private) {
				if n.Permits(netip.MustParseAddr(a), false) {
					t.Errorf("%s is permitted", a)
				}
			}
		})
	}
}

func TestPortsOfNames(t *testing.T) {
	p := spec("internal", "a.example:443 *.example:80-90/tcp b.example c.example:443/udp", "x.example")
	n, _, err := netrules.NamesOf(p.GetMode(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		port uint16
		want bool
	}{
		{"a.example", 443, true}, {"a.example", 80, true}, {"a.example", 444, false}, {"b.example", 1, true}, {"c.example", 443, false}, {"c.example", 90, true},
		{"x.example", 80, false}, {"example", 80, false}, {"other.test", 443, false}, {"", 80, false},
	} {
		if got := n.Reaches(tc.name, tc.port); got != tc.want {
			t.Errorf("%s:%d: %v", tc.name, tc.port, got)
		}
	}
}

func TestNameSets(t *testing.T) {
	sets := func(allow, deny string) []netrules.NameSet {
		t.Helper()
		parse := func(texts string) (list []netentry.Entry) {
			for _, text := range strings.Fields(texts) {
				e, err := netentry.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, e)
			}
			return list
		}
		return netrules.NameSets(parse(allow), parse(deny))
	}
	ids := func(allow, deny string) (list []string) {
		for _, s := range sets(allow, deny) {
			list = append(list, s.ID)
		}
		return list
	}
	base := ids("a.example:443 b.example:443 c.example/tcp", "")
	if len(base) != 2 {
		t.Fatalf("%v", base)
	}
	if other := ids("c.example/tcp 10.0.0.1 B.example:443 a.example:443 a.example:443", "10.0.0.1"); !slices.Equal(other, base) {
		t.Errorf("order and addresses matter: %v, %v", base, other)
	}
	for _, other := range [][]string{
		ids("a.example:443 c.example/tcp", ""), ids("a.example:443 *.b.example:443 c.example/tcp", ""), ids("a.example:444 b.example:444 c.example/tcp", ""),
		ids("a.example:443/tcp b.example:443/tcp c.example/tcp", ""), ids("a.example:443 b.example:443 c.example/tcp", "x.example"),
	} {
		if slices.Contains(other, base[1]) && slices.Contains(other, base[0]) {
			t.Errorf("one ID for different sets: %v", other)
		}
	}
	if other := ids("a.example:443 b.example:443", ""); len(other) != 1 || !slices.Contains(base, other[0]) {
		t.Errorf("a set changes with its neighbour: %v, %v", base, other)
	}
}

// What no forwarder can answer does not run.
func TestMakeRefusesNames(t *testing.T) {
	without := facts
	without.Forwarder = 0
	for policy, ok := range map[*agboxv1.NetworkSpec]bool{
		spec("internal", "a.example", ""): false, spec("internet", "", "a.example"): false, spec("internal", "1.1.1.1", ""): true,
	} {
		if _, err := netrules.Make(policy.GetMode(), policy, without); (err == nil) != ok {
			t.Errorf("%v: %v", policy, err)
		}
	}
}

func TestRulesNames(t *testing.T) {
	for policy, want := range map[*agboxv1.NetworkSpec]bool{
		spec("open", "", ""): false, spec("open", "", "1.1.1.1"): false, spec("internet", "1.1.1.1", ""): false, spec("internet", "", "a.example"): true,
		spec("internal", "", ""): true, spec("none", "", ""): true,
	} {
		if got := netrules.RulesNames(policy.GetMode(), &agboxv1.CreateSpec{Network: policy}); got != want {
			t.Errorf("%v: %t", policy, got)
		}
	}
}

var injected = []netentry.Entry{
	{Domain: "api.example", Ports: netentry.Ports{First: 443, Last: 443}, Protocol: "tcp"},
	{Domain: "corp.example", Below: true, Ports: netentry.Ports{First: 8443, Last: 8443}, Protocol: "tcp"},
}

// Connections to the addresses of names to whose requests headers are added go to the forwarder, whatever else a policy says of them.
func TestInjectedNamesAreRedirected(t *testing.T) {
	f := facts
	f.Injected = injected
	for _, policy := range []*agboxv1.NetworkSpec{
		spec("internet", "", "9.9.9.9"), spec("internet", "1.1.1.1 10.0.0.0/24", "9.9.9.9 x.example"), spec("internal", "1.1.1.1 api.example", "9.9.9.9"), verified(spec("internal", "api.example:443 b.example", "9.9.9.9")),
	} {
		mode := netrules.ModeOf(policy, "internet")
		r, err := netrules.Make(mode, policy, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			packet packet
			want   uint16
		}{
			{at(resolvedTo("93.184.216.34"), "tcp", 443), 10053}, {at(resolvedTo("2606:4700::1"), "tcp", 8443), 10053}, {at(resolvedTo("93.184.216.34"), "udp", 443), 0},
			{at(resolvedTo("1.1.1.1"), "tcp", 443), 10053}, {at(resolvedTo("10.0.0.9"), "tcp", 443), 10053}, {at(resolvedTo("9.9.9.9"), "tcp", 443), 0},
			{at(resolvedTo("10.213.0.18"), "tcp", 443), 0}, {at(to("93.184.216.34"), "tcp", 443), 0}, {at(to("8.8.8.8"), "udp", 53), 10053},
		} {
			if got := redirected(r, tc.packet); got != tc.want {
				t.Errorf("%v: %+v goes to port %d, want %d", policy, tc.packet, got, tc.want)
			}
		}
		p := host("tcp", 10053)
		if p.redirected = true; !passes(r, p) {
			t.Errorf("%v: what is redirected is dropped", policy)
		}
		if passes(r, host("tcp", 10053)) {
			t.Errorf("%v: the forwarder's port is open", policy)
		}
	}
	for _, mode := range []string{"open", "none"} {
		if r, err := netrules.Make(mode, nil, f); err != nil || len(r.Redirect) > 0 {
			t.Errorf("%s: %+v, %v", mode, r.Redirect, err)
		}
	}
}

func TestInjectedNames(t *testing.T) {
	for _, policy := range []*agboxv1.NetworkSpec{nil, spec("internet", "", "x.corp.example"), spec("internal", "", "x.corp.example"), spec("internal", "api.example:443/tcp", "x.corp.example")} {
		mode := netrules.ModeOf(policy, "internet")
		n, filtered, err := netrules.NamesOf(mode, policy, injected)
		if err != nil || !filtered {
			t.Fatal(filtered, err)
		}
		for _, name := range []string{"api.example", "a.corp.example"} {
			if sets, ok := n.Answers(name); !ok || len(sets) == 0 {
				t.Errorf("%v: %s is answered: %t, in %v", policy, name, ok, sets)
			}
		}
		sets, ok := n.Answers("other.example")
		if len(sets) > 0 || ok != (mode == "internet") {
			t.Errorf("%v: another name is answered: %t, in %v", policy, ok, sets)
		}
		if _, ok := n.Answers("x.corp.example"); ok != (policy == nil) {
			t.Errorf("%v: a denied name is answered: %t", policy, ok)
		}
		if !n.Reaches("api.example", 443) || n.Reaches("api.example", 8443) || !n.Reaches("a.corp.example", 8443) {
			t.Errorf("%v: the ports of names are others", policy)
		}
	}
}
