package try

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/attack"
)

const (
	// patience is how long an address may take to answer. All of them are near, or drop what they get.
	patience = time.Second
	// atOnce bounds the sockets that are open at the same time.
	atOnce = 200
)

// tcpPorts are those of services that open a host when they answer: SSH, DNS, HTTP, RPC, Docker, registries, Kubernetes, agboxd. Port 1
// serves nothing anywhere, so a refusal there shows that packets arrive.
var tcpPorts = []uint16{1, 22, 53, 80, 111, 443, 2375, 2376, 5000, 6443, 8080, 9478, 10250}

// udpPorts are DNS and a port that serves nothing.
var udpPorts = []uint16{53, 1}

// clouds are the metadata services of clouds.
var clouds = []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("fd00:ec2::254")}

// rootServers asks a DNS server for the root's name servers.
var rootServers = []byte{
	0x2a, 0x2a, // ID
	1, 0, // recursion is desired
	0, 1, 0, 0, 0, 0, 0, 0, // one question
	0, 0, 2, 0, 1, // the root; NS; IN
}

// packet is what one address gets on one port.
type packet struct {
	check    string
	to       netip.AddrPort
	question []byte // of UDP; nil: a connection of TCP

	fd int
}

// reach tries to connect to each target, and to those that are known here. Errors: not all could be tried.
func reach(targets []attack.Target) ([]attack.Result, error) {
	targets = slices.Clone(targets)
	for _, a := range gateways() {
		targets = append(targets, attack.Target{Kind: attack.Host, Address: a})
	}
	for _, a := range clouds {
		targets = append(targets, attack.Target{Kind: attack.Metadata, Address: a})
	}
	for _, a := range nameservers() {
		targets = append(targets, attack.Target{Kind: attack.DNS, Address: a})
	}
	var (
		all     []packet
		results []attack.Result
		done    = map[string][]attack.Success{}
	)
	for _, check := range []string{attack.Host, attack.Metadata, attack.LAN, attack.Sandbox, attack.DNS} {
		some := packets(check, targets)
		results = append(results, attack.Result{Check: check, Tried: len(some)})
		all = append(all, some...)
	}
	for some := range slices.Chunk(all, atOnce) {
		if err := send(some, func(p packet, s attack.Success) { done[p.check] = append(done[p.check], s) }); err != nil {
			return nil, err
		}
	}
	for i := range results {
		results[i].Done = done[results[i].Check]
	}
	return results, nil
}

// packets returns those of a check. DNS servers are asked at every target.
func packets(check string, targets []attack.Target) (all []packet) {
	seen := map[netip.Addr]bool{}
	for _, t := range targets {
		if seen[t.Address] || check != attack.DNS && check != t.Kind {
			continue
		}
		seen[t.Address] = true
		if check == attack.DNS {
			all = append(all, packet{check: check, to: netip.AddrPortFrom(t.Address, 53), question: rootServers})
			continue
		}
		for _, port := range tcpPorts {
			all = append(all, packet{check: check, to: netip.AddrPortFrom(t.Address, port)})
		}
		for _, port := range udpPorts {
			all = append(all, packet{check: check, to: netip.AddrPortFrom(t.Address, port), question: []byte{0}})
		}
	}
	return all
}

// send sends all packets at once, and reports those that were answered within patience. Errors: not all could be sent.
func send(all []packet, done func(packet, attack.Success)) (err error) {
	var sent []packet
	var polled []unix.PollFd
	for _, p := range all {
		if p.fd, err = p.open(); err != nil {
			return err
		}
		if p.fd < 0 {
			continue
		}
		defer unix.Close(p.fd)
		events := int16(unix.POLLIN | unix.POLLOUT)
		if p.question != nil {
			events = unix.POLLIN
		}
		sent, polled = append(sent, p), append(polled, unix.PollFd{Fd: int32(p.fd), Events: events})
	}
	for end := time.Now().Add(patience); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		switch n, err := unix.Poll(polled, int(left.Milliseconds())+1); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return nil
		}
		for i := range polled {
			if polled[i].Revents == 0 {
				continue
			}
			polled[i].Fd = -1 // it is ignored from now on
			p := sent[i]
			if what := p.answer(); what != "" {
				protocol := "tcp"
				if p.question != nil {
					protocol = "udp"
				}
				done(p, attack.Success{What: fmt.Sprintf("%s/%s %s", p.to, protocol, what), To: p.to, Protocol: protocol, Answers: strings.HasPrefix(what, "answers")})
			}
		}
	}
}

// shortages are errors of sockets whose cause is not the address.
var shortages = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

// open returns a socket that is being connected; -1 if the kernel has no way to the address. Errors: this process has no room for a socket.
func (p packet) open() (int, error) {
	var to unix.Sockaddr
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if p.to.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(p.to.Port()), Addr: p.to.Addr().As4()}
	} else {
		domain, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(p.to.Port()), Addr: p.to.Addr().As16()}
	}
	if p.question != nil {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if slices.Contains(shortages, err) {
		return -1, fmt.Errorf("open a socket to %s: %w", p.to, err)
	}
	if err != nil {
		return -1, nil
	}
	err = unix.Connect(fd, to)
	if err == nil && p.question != nil {
		_, err = unix.Write(fd, p.question)
	}
	if err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// answer says how the address answered; empty: it did not.
func (p packet) answer() string {
	failure, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return ""
	}
	if errno := unix.Errno(failure); errno == unix.ECONNREFUSED || errno == unix.ECONNRESET {
		if p.check == attack.DNS {
			return "" // the address is there, and no server
		}
		return "is reached"
	}
	switch {
	case failure != 0:
		return ""
	case p.question == nil:
		return "answers"
	}
	answer := make([]byte, 1500)
	n, err := unix.Read(p.fd, answer)
	const success = 0
	switch {
	case err != nil:
		return ""
	case p.check != attack.DNS:
		return "answers"
	case n < 12 || answer[3]&0xf != success || binary.BigEndian.Uint16(answer[6:]) == 0:
		return "" // it refuses the name
	}
	return "answers with names"
}

// gateways returns the addresses of the default routes of this thread's network namespace: the host's end of the sandbox's network. The
// sockets are of that namespace, too; /proc/net is that of the process's first thread.
func gateways() (all []netip.Addr) {
	for line := range lines("/proc/thread-self/net/route") {
		f := strings.Fields(line) // Iface Destination Gateway ...; addresses in the byte order of the processor
		if len(f) < 3 || f[1] != "00000000" {
			continue
		}
		if b, err := hex.DecodeString(f[2]); err == nil && len(b) == 4 {
			all = append(all, netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(b)))))
		}
	}
	for line := range lines("/proc/thread-self/net/ipv6_route") {
		f := strings.Fields(line) // destination, its length, source, its length, next hop
		if len(f) < 5 || f[1] != "00" {
			continue
		}
		if b, err := hex.DecodeString(f[4]); err == nil && len(b) == 16 && !netip.AddrFrom16([16]byte(b)).IsUnspecified() {
			all = append(all, netip.AddrFrom16([16]byte(b)))
		}
	}
	return all
}

func nameservers() (all []netip.Addr) {
	for line := range lines("/etc/resolv.conf") {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			all = append(all, a.WithZone(""))
		}
	}
	return all
}

// lines returns the lines of a file; none if it can't be read.
func lines(path string) func(func(string) bool) {
	data, _ := os.ReadFile(path)
	return strings.Lines(string(data))
}
