package dnsfilter_test

import (
	"net"
	"net/netip"
)

func listenPacket(addr string) (net.PacketConn, error) { return net.ListenPacket("udp", addr) }

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func dialFrom(local, remote string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(local), 0))}
	return d.Dial("udp", remote)
}
