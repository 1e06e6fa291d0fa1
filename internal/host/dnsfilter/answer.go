package dnsfilter

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/wait"
)

// slack is added to the time of an address: a program may connect in the last moment in which it may keep the answer.
const slack = 10 * time.Second

// answer returns the answer to a question. It does not return an address that is not open.
func (s *sandbox) answer(ctx context.Context, q *dns.Msg) (m *dns.Msg) {
	defer func() {
		if p := recover(); p != nil { // a message that the library cannot bear ends no other sandbox's names
			s.f.Log.Error("a question of DNS fails", "bridge", s.bridge, "panic", p)
			m = failure(q, dns.RcodeServerFailure)
		}
	}()
	switch {
	case q.Opcode != dns.OpcodeQuery:
		return failure(q, dns.RcodeNotImplemented)
	case len(q.Question) != 1:
		return failure(q, dns.RcodeFormatError)
	}
	asked := q.Question[0]
	if asked.Qclass != dns.ClassINET || asked.Qtype == dns.TypeANY || asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR {
		return failure(q, dns.RcodeNotImplemented)
	}
	ctx, cancel := context.WithTimeout(ctx, s.f.Limits.Deadline)
	defer cancel()
	name := plain(asked.Name)
	m = failure(q, dns.RcodeSuccess)
	r, err := s.resolve(ctx, m, name, asked.Qtype)
	switch {
	case err == nil:
		return m
	case errors.Is(err, errName):
		s.refuse(r, name, ReasonName)
		return prohibited(q, "the network policy of the sandbox does not let this name through")
	case errors.Is(err, errDenied):
		s.refuse(r, name, ReasonName)
		return prohibited(q, "the network policy of the sandbox denies a name that this one is an alias of")
	case errors.Is(err, errFull):
		s.refuse(r, name, ReasonFull)
	default:
		s.f.Log.Debug("a name has no answer", "bridge", s.bridge, "name", name, "err", err)
	}
	return failure(q, dns.RcodeServerFailure)
}

var (
	errName     = errors.New("the policy does not let the name through")
	errNoPolicy = errors.New("there is no policy")
)

// resolve puts the answer for a name into a message. It returns the policy by which it did so, or failed.
func (s *sandbox) resolve(ctx context.Context, m *dns.Msg, name string, qtype uint16) (*rules, error) {
	r, sets, err := s.lookUp(name)
	if err != nil {
		return r, err
	}
	a, err := s.f.upstreams.resolve(ctx, dns.Fqdn(name), qtype, r.names.Denied)
	if err != nil {
		return r, err
	}
	longest := a.shorten(s.f.Limits.Ceiling)
	var addrs []netip.Addr
	for {
		var dropped int
		addrs, dropped = s.permitted(r, &a)
		if dropped > 0 {
			s.refuse(r, name, ReasonAddress)
			explain(m, dns.ExtendedErrorCodeFiltered, "addresses that the network policy of the sandbox does not let through are left out")
		}
		err = s.admit(sets, name, addrs, max(longest, s.f.Limits.Floor)+slack)
		if !errors.Is(err, firewall.ErrNoSet) || wait.For(ctx, admitRetry) != nil {
			break
		}
		// The policy is being replaced: its rules are in force and the filter has not seen it, or the other way round.
		if r, sets, err = s.lookUp(name); err != nil {
			return r, err
		}
	}
	if err == nil {
		s.asked.add(name, false, addrs, time.Now())
	}
	m.Rcode, m.Answer, m.Ns = a.rcode, slices.Concat(a.aliases, a.records), a.authority
	return r, err
}

// admitRetry is the pause until the rules of a policy are looked for again.
const admitRetry = 20 * time.Millisecond

// lookUp returns the policy, and the sets that the addresses of a name belong to.
func (s *sandbox) lookUp(name string) (*rules, []string, error) {
	r := s.rules.Load()
	if r == nil {
		return nil, nil, errNoPolicy
	}
	sets, ok := r.names.Answers(name)
	if !ok {
		return r, nil, errName
	}
	return r, sets, nil
}

func (s *sandbox) refuse(r *rules, name string, why Reason) {
	if why == ReasonName || why == ReasonAsked {
		s.asked.add(name, true, nil, time.Now())
	}
	s.f.refusals.add(r.sandboxID, name, why, time.Now())
}

// permitted leaves the records of addresses out that the sandbox may not have, or that are too many, and returns the others' addresses.
func (s *sandbox) permitted(r *rules, a *resolution) (addrs []netip.Addr, dropped int) {
	kept := a.records[:0]
	for _, record := range a.records {
		addr, ok := address(record)
		switch {
		case !ok:
			kept = append(kept, record)
		case !r.names.Permits(addr, s.f.host.has(addr)):
			dropped++
		case len(addrs) < s.f.Limits.AnswerAddresses && !slices.Contains(addrs, addr):
			kept, addrs = append(kept, record), append(addrs, addr)
		}
	}
	a.records = kept
	return addrs, dropped
}

// address returns the address of a record that has one. One of a wrong length is the zero address, which is never permitted.
func address(record dns.RR) (a netip.Addr, ok bool) {
	switch r := record.(type) {
	case *dns.A:
		a, _ = netip.AddrFromSlice(r.A.To4())
	case *dns.AAAA:
		a, _ = netip.AddrFromSlice(r.AAAA.To16())
	default:
		return a, false
	}
	return a, true
}

// plain returns a name as policies have it.
func plain(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// failure returns an answer without records.
func failure(q *dns.Msg, rcode int) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(q, rcode)
	m.RecursionAvailable = true
	if q.IsEdns0() != nil {
		m.SetEdns0(datagram, false)
	}
	return m
}

// prohibited returns a refusal. Its code is NXDOMAIN, with which every resolver gives up at once. REFUSED is a word about the server, not
// the name: glibc and the engine ask the next server, and musl ignores it until its time is up.
func prohibited(q *dns.Msg, why string) *dns.Msg {
	m := failure(q, dns.RcodeNameError)
	explain(m, dns.ExtendedErrorCodeProhibited, why)
	return m
}

// explain adds a sentence for people, if the asker understands such.
func explain(m *dns.Msg, code uint16, why string) {
	if o := m.IsEdns0(); o != nil {
		o.Option = append(o.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: why})
	}
}
