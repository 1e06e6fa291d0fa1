package dnsfilter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of a chain of aliases, and of the questions that it takes to follow it.
const (
	maxAliases   = 12
	maxQuestions = 4
)

// spared is how long an upstream server that has failed is asked after the others.
const spared = 10 * time.Second

// upstreams asks servers.
type upstreams struct {
	list func() []netip.AddrPort
	try  time.Duration

	mu     sync.Mutex
	failed map[netip.AddrPort]time.Time
}

// resolution is what upstream servers say to a question. Other records than these are dropped: they answer no question.
type resolution struct {
	rcode int
	// aliases lead from the name to the owner of the records.
	aliases, records []dns.RR
	// authority says how long it is known that there are no records.
	authority []dns.RR
}

var (
	errDenied  = errors.New("an alias of a denied name")
	errAliases = errors.New("too many aliases")
	errCannot  = errors.New("cannot answer")
)

// resolve asks for the records of a name, which ends with a dot. It follows aliases; errDenied if one of them leads to a name that denied reports.
func (u *upstreams) resolve(ctx context.Context, name string, qtype uint16, denied func(string) bool) (r resolution, err error) {
	for range maxQuestions {
		m, err := u.ask(ctx, name, qtype)
		if err != nil {
			return r, err
		}
		aliases, records, end := follow(m.Answer, name, qtype)
		r.aliases, r.records, r.rcode, r.authority = append(r.aliases, aliases...), records, m.Rcode, nil
		if len(r.aliases) > maxAliases {
			return r, errAliases
		}
		for _, a := range aliases {
			if denied(plain(a.(*dns.CNAME).Target)) {
				return r, errDenied
			}
		}
		for _, a := range m.Ns {
			if a.Header().Rrtype == dns.TypeSOA {
				r.authority = append(r.authority, a)
			}
		}
		if len(aliases) == 0 || len(records) > 0 || len(r.authority) > 0 || m.Rcode != dns.RcodeSuccess {
			return r, nil
		}
		name = end
	}
	return r, errAliases
}

// follow returns the aliases that lead from a name to another, and the records of a type that the last one has. More than maxAliases are cut.
func follow(all []dns.RR, name string, qtype uint16) (aliases, records []dns.RR, end string) {
	for len(aliases) <= maxAliases && qtype != dns.TypeCNAME {
		i := slices.IndexFunc(all, func(r dns.RR) bool {
			_, ok := r.(*dns.CNAME)
			return ok && strings.EqualFold(r.Header().Name, name)
		})
		if i < 0 {
			break
		}
		aliases, name = append(aliases, all[i]), all[i].(*dns.CNAME).Target
	}
	for _, r := range all {
		if h := r.Header(); h.Rrtype == qtype && h.Class == dns.ClassINET && strings.EqualFold(h.Name, name) {
			records = append(records, withoutHints(r))
		}
	}
	return aliases, records, name
}

// withoutHints removes addresses from records that are about something else: they would not be open.
func withoutHints(r dns.RR) dns.RR {
	hint := func(v dns.SVCBKeyValue) bool { return v.Key() == dns.SVCB_IPV4HINT || v.Key() == dns.SVCB_IPV6HINT }
	switch r := r.(type) {
	case *dns.SVCB:
		r.Value = slices.DeleteFunc(r.Value, hint)
	case *dns.HTTPS:
		r.Value = slices.DeleteFunc(r.Value, hint)
	}
	return r
}

// shorten bounds the time for which the records may be kept, and returns the longest.
func (r *resolution) shorten(ceiling time.Duration) (longest time.Duration) {
	for _, record := range slices.Concat(r.aliases, r.records, r.authority) {
		h := record.Header()
		h.Ttl = min(h.Ttl, uint32(ceiling/time.Second))
		longest = max(longest, time.Duration(h.Ttl)*time.Second)
	}
	return longest
}

// ask asks the servers in turn until one answers or the context ends. A server that says that it cannot answer is asked once.
func (u *upstreams) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	err := errors.New("there is no upstream server")
	const rounds = 3
	for range rounds {
		lost := false
		for _, server := range u.inOrder() {
			var m *dns.Msg
			m, err = u.askOne(ctx, server, name, qtype)
			u.mark(server, err != nil)
			if err == nil || ctx.Err() != nil {
				return m, err
			}
			lost = lost || !errors.Is(err, errCannot)
		}
		if !lost {
			break
		}
	}
	return nil, err
}

// inOrder returns the servers, those behind that have failed.
func (u *upstreams) inOrder() []netip.AddrPort {
	servers := slices.Clone(u.list())
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	rank := func(s netip.AddrPort) int {
		if now.Before(u.failed[s]) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(servers, func(a, b netip.AddrPort) int { return rank(a) - rank(b) })
	return servers
}

func (u *upstreams) mark(server netip.AddrPort, failed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed == nil {
		u.failed = map[netip.AddrPort]time.Time{}
	}
	if failed {
		u.failed[server] = time.Now().Add(spared)
	} else {
		delete(u.failed, server)
	}
}

// askOne asks one server, by TCP if a datagram is too small for the answer. Each question has a port and an ID of its own, which who wants to
// forge an answer has to guess.
func (u *upstreams) askOne(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, u.try)
	defer cancel()
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	q.SetEdns0(datagram, false)
	for _, network := range []string{"udp", "tcp"} {
		c := dns.Client{Net: network, Timeout: u.try}
		m, _, err := c.ExchangeContext(ctx, q, server.String())
		cut := network == "udp" && m != nil && m.Truncated // perhaps within a record, which is an error
		if err != nil && !cut {
			return nil, fmt.Errorf("ask %s: %w", server, err)
		}
		switch {
		case !m.Response || len(m.Question) != 1 || m.Question[0].Qtype != qtype || !strings.EqualFold(m.Question[0].Name, q.Question[0].Name):
			return nil, fmt.Errorf("%s answers another question", server)
		case cut:
			continue
		case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
			return nil, fmt.Errorf("%s %w: %s", server, errCannot, dns.RcodeToString[m.Rcode])
		}
		return m, nil
	}
	return nil, fmt.Errorf("%s cuts its answer", server)
}

// ResolvConf returns the servers of a file like /etc/resolv.conf, as it is at each call.
func ResolvConf(path string) func() []netip.AddrPort {
	var mu sync.Mutex
	var seen stamp
	var servers []netip.AddrPort
	return func() []netip.AddrPort {
		mu.Lock()
		defer mu.Unlock()
		info, err := os.Stat(path)
		if err != nil || stampOf(info) == seen {
			return servers
		}
		conf, err := dns.ClientConfigFromFile(path)
		if err != nil {
			return servers
		}
		seen, servers = stampOf(info), nil
		for _, s := range conf.Servers {
			if a, err := netip.ParseAddr(s); err == nil {
				servers = append(servers, netip.AddrPortFrom(a, 53))
			}
		}
		return servers
	}
}
