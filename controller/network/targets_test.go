package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestTargets(t *testing.T) {
	host := HostFacts{Addresses: addresses("127.0.0.1", "10.0.0.2", "fe80::1"), Routers: addresses("10.0.0.1", "1.1.1.1"), Resolvers: addresses("10.0.0.3")}
	others := []netip.Prefix{netip.MustParsePrefix("10.20.5.0/28")}
	for where, tt := range map[string]struct {
		host    func() (HostFacts, error)
		foreign string
		want    string
	}{
		"here":      {func() (HostFacts, error) { return host, nil }, "", "[host=10.0.0.2 lan=10.0.0.1 dns=10.0.0.3 sandbox=10.20.5.2 sandbox=10.20.5.3]"},
		"elsewhere": {func() (HostFacts, error) { return host, nil }, "is elsewhere", "[sandbox=10.20.5.2 sandbox=10.20.5.3]"},
		"no facts":  {nil, "", "[sandbox=10.20.5.2 sandbox=10.20.5.3]"},
	} {
		k := New(Options{
			Host:    tt.host,
			Others:  func(context.Context, string) ([]netip.Prefix, error) { return others, nil },
			Foreign: func(context.Context) (string, error) { return tt.foreign, nil },
		})
		if got, err := k.Targets(t.Context(), "x"); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, %v, want %s", where, got, err, tt.want)
		}
	}
}

// However many networks and addresses there are, the packets of a self-test are bounded.
func TestTargetsAreBounded(t *testing.T) {
	var h HostFacts
	var others []netip.Prefix
	for i := range 200 {
		h.Addresses = append(h.Addresses, netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}))
		others = append(others, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i), 0}), 24))
	}
	h.Routers, h.Resolvers = h.Addresses, h.Addresses
	all := targets(others, h)
	if text := fmt.Sprint(all); len(all) != 40 || !strings.Contains(text, "sandbox=10.2.7.3]") {
		t.Errorf("%d: %s", len(all), text)
	}
}
