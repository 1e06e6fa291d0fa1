package dnsfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/wait"
)

// Bounds of a question in bytes, and of the time in which a TCP connection asks the next one or takes an answer.
const (
	maxQuestion = 4096
	idle        = 10 * time.Second
)

// listen makes the sandbox be heard on its bridge. The engine may remove a bridge and make it again: it has another index then. An index of 0
// is no bridge.
func (s *sandbox) listen(ctx context.Context, index int) error {
	if index == s.index {
		return nil
	}
	s.close()
	if index == 0 {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	udp, tcp, err := s.open(ctx)
	if err != nil {
		stop()
		return err
	}
	var all sync.WaitGroup
	context.AfterFunc(ctx, func() { udp.Close(); tcp.Close() })
	all.Go(func() { s.serveUDP(ctx, udp) })
	all.Go(func() { s.serveTCP(ctx, tcp) })
	s.index, s.stop = index, func() { stop(); all.Wait() }
	return nil
}

func (s *sandbox) open(ctx context.Context) (*net.UDPConn, net.Listener, error) {
	addr := fmt.Sprintf(":%d", s.f.Port)
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), s.bridge) }), err)
	}}
	p, err := lc.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, nil, err
	}
	udp := p.(*net.UDPConn)
	// Answers leave from the address that was asked: a bridge may have several.
	err6 := ipv6.NewPacketConn(udp).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	err4 := ipv4.NewPacketConn(udp).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	if err4 != nil && err6 != nil {
		udp.Close()
		return nil, nil, err4
	}
	tcp, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		udp.Close()
		return nil, nil, err
	}
	return udp, tcp, nil
}

func (s *sandbox) serveUDP(ctx context.Context, c *net.UDPConn) {
	var all sync.WaitGroup
	defer all.Wait()
	b := make([]byte, maxQuestion)
	for s.rate.Wait(ctx) == nil {
		n, session, err := dns.ReadFromSessionUDP(c, b)
		if ctx.Err() != nil {
			return
		}
		q := new(dns.Msg)
		if err != nil || q.Unpack(b[:n]) != nil || q.Response {
			continue
		}
		reply := func(m *dns.Msg) {
			m.Truncate(sizeFor(q))
			if packed, err := m.Pack(); err == nil {
				_, _ = dns.WriteToSessionUDP(c, packed, session)
			}
		}
		if !s.enter() {
			reply(failure(q, dns.RcodeServerFailure))
			continue
		}
		all.Go(func() {
			defer s.leave()
			defer s.survive()
			reply(s.answer(ctx, q))
		})
	}
}

// sizeFor returns how many bytes the asker of a question takes in a datagram, within what no network splits.
func sizeFor(q *dns.Msg) int {
	if o := q.IsEdns0(); o != nil {
		return max(dns.MinMsgSize, min(int(o.UDPSize()), datagram))
	}
	return dns.MinMsgSize
}

// datagram is the size of a datagram that no network splits.
const datagram = 1232

func (s *sandbox) serveTCP(ctx context.Context, l net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			_ = wait.For(ctx, retry) // no file descriptor is left
			continue
		}
		to, err := sentTo(c.(*net.TCPConn))
		serve, slots := s.serveConn, []chan struct{}{s.conns}
		if err == nil && to.Port() != portDNS {
			serve, slots = func(ctx context.Context, c net.Conn) { s.passOn(ctx, c.(*net.TCPConn), to) }, []chan struct{}{s.passed, s.f.passed}
		}
		if !enter(slots...) {
			c.Close()
			continue
		}
		all.Go(func() {
			defer leave(slots...)
			defer s.survive()
			serve(ctx, c)
		})
	}
}

// survive is deferred: a panic about what one sandbox sends ends no other sandbox's names.
func (s *sandbox) survive() {
	if p := recover(); p != nil {
		s.f.Log.Error("what a sandbox sends is not served", "bridge", s.bridge, "panic", p)
	}
}

const portDNS = 53

// soOriginalDst is SO_ORIGINAL_DST of IPv4 and IP6T_SO_ORIGINAL_DST of IPv6: where a redirected connection was sent to.
const soOriginalDst = 80

// sentTo returns where the client of a redirected connection has sent it to.
func sentTo(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	local, _ := netip.ParseAddrPort(c.LocalAddr().String())
	var getErr error
	err = raw.Control(func(fd uintptr) {
		if local.Addr().Unmap().Is4() {
			var a *unix.IPv6Mreq // its first 16 bytes are those of a sockaddr_in
			if a, getErr = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst); getErr == nil {
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Multiaddr[4:8])), binary.BigEndian.Uint16(a.Multiaddr[2:4]))
			}
			return
		}
		var a *unix.IPv6MTUInfo // it begins with a sockaddr_in6
		if a, getErr = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, soOriginalDst); getErr == nil {
			port := binary.NativeEndian.AppendUint16(nil, a.Addr.Port)
			to = netip.AddrPortFrom(netip.AddrFrom16(a.Addr.Addr), binary.BigEndian.Uint16(port))
		}
	})
	return to, errors.Join(err, getErr)
}

// serveConn answers the questions of a connection, one after the other.
func (s *sandbox) serveConn(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	conn := &dns.Conn{Conn: c}
	for s.rate.Wait(ctx) == nil {
		_ = c.SetReadDeadline(time.Now().Add(idle))
		q, err := conn.ReadMsg()
		if err != nil || q.Response {
			return
		}
		m := failure(q, dns.RcodeServerFailure)
		if s.enter() {
			m = s.answer(ctx, q)
			s.leave()
		}
		m.Truncate(dns.MaxMsgSize)
		_ = c.SetWriteDeadline(time.Now().Add(idle))
		if conn.WriteMsg(m) != nil {
			return
		}
	}
}

// enter reserves a slot for a question, of the sandbox and of all.
func (s *sandbox) enter() bool { return enter(s.inFlight, s.f.inFlight) }

func (s *sandbox) leave() { leave(s.inFlight, s.f.inFlight) }

// enter reserves a slot in each of some bounds, or in none.
func enter(bounds ...chan struct{}) bool {
	for i, b := range bounds {
		select {
		case b <- struct{}{}:
		default:
			leave(bounds[:i]...)
			return false
		}
	}
	return true
}

func leave(bounds ...chan struct{}) {
	for _, b := range bounds {
		<-b
	}
}
