package firewall_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// recorded returns the destinations in records as text, sorted.
func recorded(t *testing.T, read func() ([]firewall.Record, error)) (list []string) {
	t.Helper()
	records, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Bridge != bridge {
			t.Errorf("recorded of %q: %v", r.Bridge, r)
		}
		if r.Addr == netip.MustParseAddr("2606:4700::1111") && r.Port == 80 {
			continue // the connection by which newSite waits may end after the rules are set
		}
		if r.Packets == 0 || time.Since(r.Last) > time.Minute || time.Until(r.Last) > time.Second {
			t.Errorf("%s has %d packets, the last one at %v", r.Addr, r.Packets, r.Last)
		}
		list = append(list, fmt.Sprintf("%d %s", r.Protocol, netip.AddrPortFrom(r.Addr, r.Port)))
	}
	slices.Sort(list)
	return list
}

func (s *site) mustRecord(t *testing.T, denied, reached []string) {
	t.Helper()
	if got := recorded(t, s.fw.Denied); !slices.Equal(got, denied) {
		t.Errorf("denied: %q, want %q", got, denied)
	}
	if got := recorded(t, s.fw.Reached); !slices.Equal(got, reached) {
		t.Errorf("reached: %q, want %q", got, reached)
	}
}

func TestDestinationsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internet", "10.0.0.9:443/tcp host:8080", "8.8.8.8")
	s.mustRecord(t, nil, nil)
	check(t, true, paths(s.sandbox, "tcp 1.1.1.1:443", "udp [2606:4700::1111]:443", "tcp 10.0.0.9:443", "tcp 10.213.0.1:8080", "udp 10.0.0.2:53", "tcp 10.213.0.3:80"))
	check(t, true, append(paths(s.world, "tcp 10.213.0.2:80"), paths(s.host, "udp 10.213.0.2:80")...))
	check(t, false, paths(s.sandbox, "tcp 8.8.8.8:80", "udp 10.0.0.9:443", "tcp [fd00::9]:80", "tcp 10.213.0.18:80", "tcp 198.51.100.1:80"))
	check(t, false, paths(s.other, "tcp 10.213.0.2:80"))
	s.sandbox.Ping(t, "10.0.0.9")
	s.sandbox.Ping(t, "fd00::9")
	s.sandbox.Ping(t, "224.0.0.1")
	denied := []string{"1 10.0.0.9:0", "17 10.0.0.9:443", "58 [fd00::9]:0", "6 10.213.0.18:80", "6 198.51.100.1:80", "6 8.8.8.8:80", "6 [fd00::9]:80"}
	reached := []string{"17 [2606:4700::1111]:443", "6 1.1.1.1:443", "6 10.0.0.9:443", "6 10.213.0.1:8080"}
	s.mustRecord(t, denied, reached)
	s.enforce(t, "internal", "1.1.1.1", "") // what was recorded stays
	s.mustRecord(t, denied, reached)
	s.enforce(t, "none", "", "")
	check(t, false, paths(s.sandbox, "tcp 1.1.1.1:80", "tcp 10.213.0.3:80"))
	s.mustRecord(t, slices.Sorted(slices.Values(append(denied, "6 1.1.1.1:80"))), reached)
}

// Packets of a connection do not meet a rule that records.
func TestConnectionsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internet", "", "")
	for _, network := range []string{"tcp", "udp"} {
		c, err := s.sandbox.Dial(network, "1.1.1.1:80", long)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 20 {
			if !netns.Echoes(t, c, long) {
				t.Fatal("no echo")
			}
		}
	}
	records, err := s.fw.Reached()
	if err != nil || len(records) != 2 || records[0].Packets != 1 || records[1].Packets != 1 {
		t.Errorf("reached: %v, %v", records, err)
	}
}

// A destination that is known counts each connection to it, and each denied packet, once.
func TestConnectionsToOneDestinationAreCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enforce(t, "internet", "", "")
	const times = 5
	for range times {
		check(t, true, paths(s.sandbox, "tcp 1.1.1.1:443"))
		c, err := s.sandbox.Dial("udp", "10.0.0.9:443", long)
		if err == nil {
			_, err = c.Write([]byte("ping"))
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, read := range []func() ([]firewall.Record, error){s.fw.Denied, s.fw.Reached} {
		records, err := read()
		records = slices.DeleteFunc(records, func(r firewall.Record) bool { return r.Port != 443 })
		if err != nil || len(records) != 1 || records[0].Packets != times {
			t.Errorf("%d times: %v, %v", times, records, err)
		}
	}
}

// A set without room changes no verdict, and neither does a sandbox that has had its new destinations.
func TestFullSetsOfDestinations(t *testing.T) {
	t.Parallel()
	passes := []string{"tcp 1.1.1.1:443", "udp 1.1.1.1:80", "tcp [2606:4700::1111]:443"}
	dropped := []string{"tcp 8.8.8.8:80", "udp 10.0.0.9:443", "tcp [fd00::9]:80", "tcp 10.213.0.1:80", "tcp 10.213.0.18:80"}
	s := newSite(t)
	s.enforce(t, "internet", "", "8.8.8.8")
	knock(t, s.sandbox, "1.1.1.1", 2*firewall.MaxNew)
	knock(t, s.sandbox, "10.0.0.9", 2*firewall.MaxNew)
	for _, read := range []func() ([]firewall.Record, error){s.fw.Denied, s.fw.Reached} {
		if all, err := read(); err != nil || len(all) < firewall.MaxNew || len(all) > firewall.MaxNew+10 {
			t.Errorf("%d are recorded: %v", len(all), err)
		}
	}
	check(t, true, paths(s.sandbox, passes...))
	check(t, false, paths(s.sandbox, dropped...))

	s = newSite(t)
	s.enforce(t, "internet", "", "8.8.8.8")
	for _, list := range []string{"denied", "reached"} {
		fill(t, s.host, list, firewall.MaxRecorded, func(i int) []byte { return append(ifname("br-full"), fmt.Appendf(nil, "%028d", i)...) })
		fill(t, s.host, list+"-quota", 1<<12, func(i int) []byte { return ifname(fmt.Sprintf("br-%012x", i)) })
	}
	check(t, true, paths(s.sandbox, passes...))
	check(t, false, paths(s.sandbox, dropped...))
	if all, err := s.fw.Denied(); err != nil || len(all) != firewall.MaxRecorded {
		t.Errorf("%d are recorded: %v", len(all), err)
	}
}

func ifname(name string) []byte {
	b := make([]byte, 16)
	copy(b, name)
	return b
}

// knock sends a datagram to many ports of an address.
func knock(t *testing.T, n *netns.NS, addr string, ports int) {
	t.Helper()
	for port := range ports {
		c, err := n.Dial("udp", fmt.Sprintf("%s:%d", addr, 10000+port), long)
		if err == nil {
			_, err = c.Write([]byte("ping"))
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func isRecord(set string) bool {
	return slices.Contains([]string{"denied", "reached", "denied-quota", "reached-quota"}, set)
}

// fill adds elements to a set until the kernel refuses more.
func fill(t *testing.T, n *netns.NS, set string, size int, key func(int) []byte) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(n.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	of := &nftables.Set{Table: &nftables.Table{Name: firewall.TableName, Family: nftables.TableFamilyINet}, Name: set}
	for i := 0; i <= size; i += 256 {
		var some []nftables.SetElement
		for k := i; k < min(i+256, size+1); k++ {
			some = append(some, nftables.SetElement{Key: key(k)})
		}
		if err := c.SetAddElements(of, some); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); (err != nil) != (i == size) {
			t.Fatalf("add %d elements to %d in %s: %v", len(some), i, set, err)
		}
	}
}

// What others do to the chains that record is repaired, and what they do to the sets changes nothing.
func TestRecordsAreRepaired(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.enforce(t, "internal", "1.1.1.1", "")
	c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	table := &nftables.Table{Name: firewall.TableName, Family: nftables.TableFamilyINet}
	for _, list := range []string{"denied", "reached", "denied-new", "reached-new"} {
		c.FlushChain(&nftables.Chain{Table: table, Name: list})
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if held, err := s.fw.Holds(r); err != nil || held {
			t.Fatalf("an empty chain %s goes unnoticed: %v", list, err)
		}
		if err := s.fw.Enforce(r); err != nil {
			t.Fatal(err)
		}
		s.mustHold(t, r)
	}
	check(t, false, paths(s.sandbox, "tcp 1.1.1.2:80", "tcp 10.213.0.1:80"))
	c.FlushSet(&nftables.Set{Table: table, Name: "denied"})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	s.mustHold(t, r)
	s.mustRecord(t, nil, nil)
}

// A policy that lets everything pass has no rules, so it records nothing.
func TestNothingIsRecordedWithoutRules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r, err := netrules.Make("open", &agboxv1.NetworkSpec{}, facts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fw.Enforce(r); err != nil {
		t.Fatal(err)
	}
	check(t, true, paths(s.sandbox, "udp 1.1.1.1:80"))
	s.mustRecord(t, nil, nil)
	s.enforce(t, "open", "", "10.0.0.0/8")
	check(t, true, paths(s.sandbox, "tcp 1.1.1.1:443"))
	check(t, false, paths(s.sandbox, "tcp 10.0.0.9:80"))
	s.mustRecord(t, []string{"6 10.0.0.9:80"}, []string{"6 1.1.1.1:443"})
}
