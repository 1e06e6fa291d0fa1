package subnet

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/prometheus/procfs"
)

// Routes returns the destinations of the host's IPv4 routes, without the default route. A bridge whose subnet overlaps such
// a route would make that part of the network unreachable, and the engine does not check. proc is a mounted procfs, whose main
// routing table is that of the reader's network namespace.
func Routes(proc string) ([]netip.Prefix, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	lines, err := fs.NetRoute()
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var out []netip.Prefix
	for _, l := range lines {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], l.Destination) // the kernel prints a __be32 as a machine word
		if ones := bits.OnesCount32(l.Mask); ones > 0 {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4(b), ones))
		}
	}
	return out, nil
}
