// Package resolvers finds the DNS servers that the engine's own DNS server asks. No API of the engine says them.
package resolvers

import (
	"bufio"
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Files are the files that name the host's DNS servers.
type Files struct {
	// Main is the host's resolv.conf, and Systemd the one that systemd-resolved writes for programs that do not ask it.
	Main, Systemd string
}

// Host are the files of this host.
var Host = Files{Main: "/etc/resolv.conf", Systemd: "/run/systemd/resolve/resolv.conf"}

// fallback is what Docker asks where the host names no server that a container can reach.
var fallback = []netip.Addr{
	netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("8.8.4.4"),
	netip.MustParseAddr("2001:4860:4860::8888"), netip.MustParseAddr("2001:4860:4860::8844"),
}

// stub is the address of systemd-resolved.
var stub = netip.MustParseAddr("127.0.0.53")

// Read returns the servers that an engine without DNS settings of its own gives to containers, by Docker's rules: those of Main, or of Systemd
// if Main has only systemd-resolved; without loopback addresses; fallback if none is left. A file that cannot be read has none.
func (f Files) Read() []netip.Addr {
	servers := read(f.Main)
	if slices.Equal(servers, []netip.Addr{stub}) {
		servers = read(f.Systemd)
	}
	servers = slices.DeleteFunc(servers, netip.Addr.IsLoopback)
	if len(servers) == 0 {
		return fallback
	}
	return servers
}

// ForContainers returns the servers that a container on a network of IPv4 can ask: those of IPv4 but loopback and link-local addresses, or
// the ones of fallback if none is left.
func ForContainers(servers []netip.Addr) []netip.Addr {
	reachable := func(a netip.Addr) bool { return a.Is4() && !a.IsLoopback() && !a.IsLinkLocalUnicast() }
	for _, list := range [][]netip.Addr{servers, fallback} {
		list = slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !reachable(a) })
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

func read(path string) (servers []netip.Addr) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			servers = append(servers, a.WithZone(""))
		}
	}
	return servers
}
