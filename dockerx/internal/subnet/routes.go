package subnet

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"os"
	"strings"
)

// RouteFile is the kernel's main IPv4 routing table of the reader's network namespace.
const RouteFile = "/proc/net/route"

// Routes returns the destinations of the host's IPv4 routes, without the default route. A bridge whose subnet overlaps such
// a route would make that part of the network unreachable, and the engine does not check.
func Routes(file string) ([]netip.Prefix, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	defer f.Close()
	return parseRoutes(f)
}

// parseRoutes reads lines of: interface, destination, gateway, flags, refcount, use, metric, mask, ... with addresses as
// 8 hex digits in the byte order of the machine.
func parseRoutes(r io.Reader) ([]netip.Prefix, error) {
	var out []netip.Prefix
	lines := bufio.NewScanner(r)
	lines.Scan() // header
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 {
			continue
		}
		dst, err1 := nativeAddr(fields[1])
		mask, err2 := nativeAddr(fields[7])
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("read routes: malformed line %q", lines.Text())
		}
		if ones := bits.OnesCount32(uint32(number(mask))); ones > 0 {
			out = append(out, netip.PrefixFrom(dst, ones))
		}
	}
	return out, lines.Err()
}

func nativeAddr(digits string) (netip.Addr, error) {
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != 4 {
		return netip.Addr{}, fmt.Errorf("%q is no address", digits)
	}
	// The kernel prints a __be32 as a machine word: the digits are that word, most significant first.
	word := uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3])
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return netip.AddrFrom4(b), nil
}
