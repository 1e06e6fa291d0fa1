package firewall_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// idOf returns the ID of the only set of names of a policy.
func idOf(t *testing.T, allow, deny string) string {
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
	sets := netrules.NameSets(parse(allow), parse(deny))
	if len(sets) != 1 {
		t.Fatalf("%v", sets)
	}
	return sets[0].ID
}

func (s *site) admit(t *testing.T, id string, d time.Duration, addrs ...string) {
	t.Helper()
	var list []firewall.Admission
	for _, a := range addrs {
		list = append(list, firewall.Admission{Names: id, Addr: netip.MustParseAddr(a), For: d})
	}
	if err := s.fw.Admit(bridge, list); err != nil {
		t.Fatal(err)
	}
}

func TestPacketsOfNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host.Serve(t, int(facts.Forwarder)) // plays the forwarder
	s.world.Serve(t, 853)
	dns := paths(s.sandbox, "udp 1.1.1.1:53", "tcp 8.8.8.8:53", "udp 10.0.0.2:53", "udp [2606:4700::1111]:53", "tcp [fd00::2]:53", "udp 198.51.100.1:53", "udp 203.0.113.99:53")
	own := paths(s.sandbox, "udp 10.213.0.3:53", "tcp 10.213.0.3:80", "tcp [fd13::3]:53")
	never := paths(s.sandbox, "tcp 1.1.1.1:853", "udp 1.1.1.1:853", "udp 10.213.0.1:10053", "tcp 10.213.0.1:10053", "tcp 198.51.100.1:10053", "tcp [fd13::1]:10053",
		"udp 10.213.0.17:10053", "udp 10.213.0.1:53", "tcp 10.213.0.1:80", "tcp 10.213.0.18:80", "tcp 192.168.7.7:443", "udp 10.213.0.18:53")
	named := paths(s.sandbox, "tcp 1.1.1.1:443", "udp 1.1.1.1:443", "tcp [2606:4700::1111]:443")
	others := paths(s.sandbox, "tcp 1.1.1.1:80", "tcp 8.8.8.8:443", "udp 8.8.8.8:80")

	old, err := s.sandbox.Dial("udp", "8.8.8.8:53", long)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	s.enforce(t, "internet", "8.8.8.8:53", "")
	if !netns.Echoes(t, old, long) {
		t.Fatal("DNS does not pass without names in the policy")
	}
	s.enforce(t, "internal", "*.example:443 10.0.0.9", "8.8.8.0/24")
	if netns.Echoes(t, old, short) {
		t.Error("an older flow of DNS goes past the forwarder")
	}
	check(t, true, append(append(dns, own...), paths(s.sandbox, "tcp 10.0.0.9:80")...))
	check(t, false, append(append(never, named...), others...))
	check(t, true, paths(s.other, "udp 1.1.1.1:53", "tcp 1.1.1.1:853")) // which has no rules

	id := idOf(t, "*.example:443", "")
	s.admit(t, id, time.Minute, "1.1.1.1", "2606:4700::1111", "8.8.8.8", "10.213.0.18", "198.51.100.1")
	check(t, true, append(dns, named...))
	check(t, false, append(append(never, others...), paths(s.sandbox, "tcp 10.213.0.18:443", "tcp 198.51.100.1:443")...))

	s.enforce(t, "internet", "", "*.example")
	check(t, true, append(append(dns, own...), paths(s.sandbox, "tcp 1.1.1.1:80", "tcp [2606:4700::1111]:443")...))
	check(t, false, append(never, paths(s.sandbox, "tcp 10.0.0.9:80")...))
}

// The port of a dead forwarder refuses at once: no name resolves, and no program waits.
func TestNamesWithoutForwarder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internal", "a.example", "")
	for _, target := range []string{"udp 1.1.1.1:53", "tcp 10.0.0.2:53", "udp [2606:4700::1111]:53", "tcp [fd00::2]:53"} {
		network, addr, _ := strings.Cut(target, " ")
		begun := time.Now()
		c, err := s.sandbox.Dial(network, addr, long)
		if err == nil {
			_, _ = c.Write([]byte("ping"))
			_ = c.SetReadDeadline(time.Now().Add(long))
			_, err = c.Read(make([]byte, 4))
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(begun) > 2*time.Second {
			t.Errorf("%s: %v after %s", target, err, time.Since(begun))
		}
	}
}

func TestAddressesTimeOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.enforce(t, "internal", "a.example", "")
	id := idOf(t, "a.example", "")
	s.admit(t, id, 2*time.Second, "1.1.1.1")
	s.admit(t, id, time.Minute, "8.8.8.8")
	s.admit(t, id, 2*time.Second, "2606:4700::1111")
	s.admit(t, id, time.Minute, "2606:4700::1111") // later answers say so
	s.mustHold(t, r)
	c, err := s.sandbox.Dial("tcp", "1.1.1.1:80", long)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.Sleep(2500 * time.Millisecond)
	check(t, false, paths(s.sandbox, "tcp 1.1.1.1:80"))
	check(t, true, paths(s.sandbox, "tcp 8.8.8.8:80", "tcp [2606:4700::1111]:80"))
	if !netns.Echoes(t, c, long) {
		t.Error("an established connection ends with the time of its address")
	}
	s.mustHold(t, r)
	s.admit(t, id, time.Minute, "1.1.1.1")
	check(t, true, paths(s.sandbox, "tcp 1.1.1.1:80"))
}

// A replacement keeps the addresses of names that the new policy has too, and those of no others.
func TestReplacementKeepsAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internal", "a.example:443", "")
	id := idOf(t, "a.example:443", "")
	s.admit(t, id, time.Minute, "1.1.1.1", "2606:4700::1111")
	named := paths(s.sandbox, "tcp 1.1.1.1:443", "tcp [2606:4700::1111]:443")
	for _, policy := range [][2]string{
		{"a.example:443", ""}, {"a.example:443 10.0.0.9", "10.0.0.8"}, {"a.example:443 b.example:80", ""}, {"a.example:443", "169.254.0.0/16"},
	} {
		s.enforce(t, "internal", policy[0], policy[1])
		check(t, true, named)
	}
	fw := firewall.New(int(s.host.File.Fd())) // of a daemon that has restarted
	r, err := netrules.Make("internal", &agboxv1.NetworkSpec{Allow: []string{"a.example:443"}}, facts)
	if err != nil {
		t.Fatal(err)
	}
	if err := fw.Enforce(r); err != nil {
		t.Fatal(err)
	}
	check(t, true, named)
	s.enforce(t, "internal", "b.example:443", "")
	check(t, false, named)
	if err := s.fw.Admit(bridge, []firewall.Admission{{Names: id, Addr: netip.MustParseAddr("1.1.1.1"), For: time.Minute}}); !errors.Is(err, firewall.ErrNoSet) {
		t.Errorf("an address of the former policy is admitted: %v", err)
	}
	s.enforce(t, "internal", "a.example:443", "")
	check(t, false, named) // the set is a new one
	if err := s.fw.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := c.GetSets(&nftables.Table{Name: firewall.TableName, Family: nftables.TableFamilyINet})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		if !set.IsMap && !isRecord(set.Name) {
			t.Errorf("left: %s", set.Name)
		}
	}
}

func TestRepairsOfNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host.Serve(t, int(facts.Forwarder))
	if err := s.fw.CheckRedirect(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.fw.Bridges(); err != nil || len(got) > 0 {
		t.Errorf("left by a check: %v, %v", got, err)
	}
	want := s.enforce(t, "internal", "a.example", "")
	table := &nftables.Table{Name: firewall.TableName, Family: nftables.TableFamilyINet}
	for name, change := range map[string]func(c *nftables.Conn){
		"the chain of the redirect flushed": func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Name: "redirect-" + bridge, Table: table}) },
		"the base chain flushed":            func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Name: "prerouting", Table: table}) },
		"the map flushed":                   func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "redirect"}) },
		"everything flushed":                func(c *nftables.Conn) { c.FlushRuleset() },
		"a rule in front": func(c *nftables.Conn) {
			c.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "prerouting", Table: table}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
		},
	} {
		c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.fw.Holds(want); err != nil || ok {
			t.Errorf("%s: went unseen: %v, %v", name, ok, err)
		}
		if err := s.fw.Enforce(want); err != nil {
			t.Fatal(err)
		}
		s.mustHold(t, want)
		check(t, true, paths(s.sandbox, "udp 1.1.1.1:53"))
		check(t, false, paths(s.sandbox, "tcp 1.1.1.1:80"))
	}
}

// Many addresses, by several writers, while the rules are replaced.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internal", "a.example", "")
	id := idOf(t, "a.example", "")
	var many []firewall.Admission
	for i := range 5000 {
		many = append(many, firewall.Admission{Names: id, Addr: netip.MustParseAddr(fmt.Sprintf("100.%d.%d.1", i/200, i%200)), For: time.Minute})
	}
	begun := time.Now()
	if err := s.fw.Admit(bridge, many); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d addresses in %s", len(many), time.Since(begun))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			fw := firewall.New(int(s.host.File.Fd()))
			for range 50 {
				if err := fw.Admit(bridge, append(many[:20:20], firewall.Admission{Names: id, Addr: netip.MustParseAddr("1.1.1.1"), For: time.Minute})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		s.enforce(t, "internal", "a.example 10.0.0.9", "")
		s.enforce(t, "internal", "a.example", "")
	}
	all.Wait()
	check(t, true, paths(s.sandbox, "tcp 1.1.1.1:80"))
}

func BenchmarkAdmit(b *testing.B) {
	host := netns.New(b, "host")
	fw := firewall.New(int(host.File.Fd()))
	for i := range 200 {
		f := facts
		f.Bridge = fmt.Sprintf("br-%012x", i)
		r, err := netrules.Make("internal", &agboxv1.NetworkSpec{Allow: []string{"a.example"}}, f)
		if err != nil {
			b.Fatal(err)
		}
		if err := fw.Enforce(r); err != nil {
			b.Fatal(err)
		}
	}
	id := netrules.NameSets([]netentry.Entry{{Domain: "a.example"}}, nil)[0].ID
	for b.Loop() {
		list := []firewall.Admission{{Names: id, Addr: netip.MustParseAddr("1.1.1.1"), For: time.Minute}, {Names: id, Addr: netip.MustParseAddr("2606:4700::1"), For: time.Minute}}
		if err := fw.Admit("br-000000000007", list); err != nil {
			b.Fatal(err)
		}
	}
}
