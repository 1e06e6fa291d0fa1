// Package hostnet reads which addresses this host has, and which routers it uses.
package hostnet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/prometheus/procfs"
)

// Addresses returns the addresses of all interfaces of this host, the loopback included.
func Addresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read the host's addresses: %w", err)
	}
	var all []netip.Addr
	for _, f := range found {
		if n, ok := f.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, a.Unmap())
			}
		}
	}
	return all, nil
}

// Routers returns the next hops of this host's default routes of IPv4.
func Routers() ([]netip.Addr, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	routes, err := fs.NetRoute()
	if err != nil {
		return nil, fmt.Errorf("read the host's routes: %w", err)
	}
	var all []netip.Addr
	for _, r := range routes {
		if r.Destination == 0 && r.Mask == 0 && r.Gateway != 0 {
			all = append(all, netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, r.Gateway)))) // in the byte order of the network
		}
	}
	return all, nil
}
