package dnsfilter

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"

	"github.com/agbox/agbox/internal/host/authority"
	"github.com/agbox/agbox/internal/host/nameproxy"
)

// passOn passes a connection to the address of a name on, and adds headers to its requests. A policy that has the names that are let through lets it ask
// for these alone, at their ports.
func (s *sandbox) passOn(ctx context.Context, c *net.TCPConn, to netip.AddrPort) {
	r := s.rules.Load()
	if r == nil || !r.verify && !s.permits(r, to) { // Allows asks the others, and answers
		c.Close()
		return
	}
	nameproxy.Proxy{
		To: to, Opaque: !r.verify, Roots: s.f.Roots,
		Allows: func(name string) bool {
			r := s.rules.Load()
			return s.permits(r, to) && r.names.Reaches(name, to.Port())
		},
		Refused: func(name string) {
			if r := s.rules.Load(); r != nil {
				s.refuse(r, cmp.Or(name, to.String()), ReasonAsked)
			}
		},
		Inject: func(name string) *nameproxy.Injection { return s.injection(name, to) },
	}.Serve(ctx, c)
}

// permits reports whether connections are passed on to an address. What this process sends comes from the host, and no rule of the packet filter stops it:
// no name opens the host, whatever addresses the policy has.
func (s *sandbox) permits(r *rules, to netip.AddrPort) bool {
	return r != nil && !s.f.host.has(to.Addr()) && r.names.Permits(to.Addr(), false)
}

var errForbidden = errors.New("the network policy of the sandbox does not let this host through")

// injection returns what is added to the requests for a name at an address, by the policy at the time of each; nil: nothing.
func (s *sandbox) injection(name string, to netip.AddrPort) *nameproxy.Injection {
	r := s.rules.Load()
	if r == nil || len(r.headersFor(name, to.Port())) == 0 {
		return nil
	}
	return &nameproxy.Injection{
		Share:       s.injected,
		Certificate: func() (*tls.Certificate, error) { return r.authority.For(name) },
		Headers: func() (http.Header, error) { // a request of an old connection may need a new one to the server
			r := s.rules.Load()
			if !s.permits(r, to) || r.names.Denied(name) || r.verify && !r.names.Reaches(name, to.Port()) {
				return nil, errForbidden
			}
			all := http.Header{}
			for _, h := range r.headersFor(name, to.Port()) {
				value, err := h.value()
				if err != nil {
					return nil, fmt.Errorf("the secret %s is not added: %w", h.name, err)
				}
				all[h.rule.Name] = []string{value} // the narrowest host is the last
			}
			return all, nil
		},
	}
}

func (r *rules) headersFor(name string, port uint16) (list []header) {
	for _, h := range r.headers {
		if h.rule.Covers(name, port) {
			list = append(list, h)
		}
	}
	return list
}

// narrowestLast sorts headers so that of those with one name the one for the narrowest host is the last.
func narrowestLast(list []header) {
	slices.SortStableFunc(list, func(a, b header) int {
		if a.rule.Host.Below != b.rule.Host.Below {
			if a.rule.Host.Below {
				return -1
			}
			return 1
		}
		return cmp.Compare(len(a.rule.Host.Domain), len(b.rule.Host.Domain))
	})
}

// value reads the secret at each request: a new value counts at once.
func (h header) value() (string, error) {
	body, err := os.ReadFile(h.file)
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err // the path is the host's
	}
	if err != nil {
		return "", fmt.Errorf("it cannot be read: %w", err)
	}
	return h.rule.Value(body)
}

// authorityOf decodes the authority of a policy. One that the last policy had keeps the certificates that it has made.
func (s *sandbox) authorityOf(text string) (*authority.Authority, error) {
	if r := s.rules.Load(); r != nil && r.authority != nil && string(r.authority.Encode()) == text {
		return r.authority, nil
	}
	a, err := authority.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("decode the authority: %w", err)
	}
	return a, nil
}
