package netrules

import "net/netip"

// blocked4 are the blocks of IPv4 that are not the public internet, by IANA's registry of special-purpose addresses, and what clouds put
// among public addresses.
var blocked4 = []string{
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // shared by carriers; Alibaba's metadata
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local; metadata of most clouds
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments; Oracle's metadata
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // relays to 6to4
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast

	"168.63.129.16/32", // Azure's host services
}

// blocked6 are the blocks of IPv6 that are not the public internet. Addresses that embed one of IPv4 are blocked as a whole, except those
// of the public NAT64 prefix, of which only what embeds a blocked one is.
var blocked6 = []string{
	"::/96",          // unspecified, loopback, and embedded IPv4
	"::ffff:0:0/96",  // embedded IPv4
	"64:ff9b:1::/48", // local NAT64
	"100::/64",       // discard
	"2001::/23",      // protocol assignments, Teredo among them
	"2001:db8::/32",  // documentation
	"2002::/16",      // 6to4
	"3fff::/20",      // documentation
	"5f00::/16",      // segment routing
	"fc00::/7",       // private; AWS's and Google's metadata
	"fe80::/10",      // link-local
	"fec0::/10",      // site-local
	"ff00::/8",       // multicast
}

// nat64 is the public prefix behind which an IPv4 address is reached from IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// notPublic are the ranges that the mode internet blocks.
var notPublic = makeNotPublic()

// Public reports whether an address is one of the public internet.
func Public(a netip.Addr) bool { return a.IsValid() && !within(notPublic, a) }

func makeNotPublic() []Range {
	var blocks []netip.Prefix
	for _, text := range blocked4 {
		p := netip.MustParsePrefix(text)
		embedded := nat64.Addr().As16()
		v4 := p.Addr().As4()
		copy(embedded[12:], v4[:])
		blocks = append(blocks, p, netip.PrefixFrom(netip.AddrFrom16(embedded), 96+p.Bits()))
	}
	for _, text := range blocked6 {
		blocks = append(blocks, netip.MustParsePrefix(text))
	}
	return Ranges(blocks)
}
