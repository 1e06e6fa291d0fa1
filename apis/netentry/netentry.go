// Package netentry parses the entries of a network policy: "10.0.0.0/8", "10.0.0.5:5432/tcp", "[2001:db8::1]:443", "host:8080".
package netentry

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Entry is the destination that one entry of a policy names.
type Entry struct {
	// Prefix has no bits behind its length. It is invalid if Host is set.
	Prefix netip.Prefix
	// Host is the sandbox's host, at any of its addresses.
	Host bool
	// Ports are the destination ports; the zero value is all of them, and protocols without ports too.
	Ports Ports
	// Protocol is "tcp", "udp", or empty: with Ports both, without any protocol.
	Protocol string
}

// Ports is a range of ports, its ends included. First is 0 only in the zero value.
type Ports struct{ First, Last uint16 }

// HostWord is the target that means the sandbox's host.
const HostWord = "host"

// errDomain is the error for an entry that names a domain.
var errDomain = errors.New("is a domain name, and policies cannot name domains yet: write addresses or CIDR blocks")

// Parse reads an entry: a target, optionally ":port" or ":first-last", optionally "/tcp" or "/udp". A target is an address, a CIDR block,
// or "host", which needs a port. IPv6 targets with a port are in brackets. The error continues a sentence that begins with the entry.
func Parse(text string) (Entry, error) {
	var e Entry
	rest := text
	for _, p := range []string{"tcp", "udp"} {
		if target, ok := strings.CutSuffix(rest, "/"+p); ok {
			rest, e.Protocol = target, p
			break
		}
	}
	target, ports, hasPorts, err := split(rest)
	if err != nil {
		return Entry{}, err
	}
	if hasPorts {
		if e.Ports, err = parsePorts(ports); err != nil {
			return Entry{}, err
		}
	}
	if target == HostWord {
		if !hasPorts {
			return Entry{}, errors.New("needs a port: write host:8080")
		}
		e.Host = true
		return e, nil
	}
	e.Prefix, err = parsePrefix(target)
	if err != nil {
		return Entry{}, err
	}
	return e, nil
}

// split separates the target from its ports.
func split(text string) (target, ports string, hasPorts bool, err error) {
	if inside, ok := strings.CutPrefix(text, "["); ok {
		target, rest, closed := strings.Cut(inside, "]")
		if !closed || !strings.Contains(target, ":") {
			return "", "", false, errors.New("has brackets that hold no IPv6 address: write [2001:db8::1]:443")
		}
		ports, hasPorts = strings.CutPrefix(rest, ":")
		if rest != "" && !hasPorts {
			return "", "", false, errors.New("has text behind the brackets that is no port: write [2001:db8::1]:443")
		}
		return target, ports, hasPorts, nil
	}
	if strings.Count(text, ":") > 1 {
		return text, "", false, nil
	}
	target, ports, hasPorts = strings.Cut(text, ":")
	return target, ports, hasPorts, nil
}

func parsePorts(text string) (Ports, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, okA := port(first)
	b, okB := port(last)
	if !okA || !okB || a > b {
		return Ports{}, errors.New("has a port that is none: write a number from 1 to 65535, or a range like 8000-8080")
	}
	return Ports{a, b}, nil
}

func port(text string) (uint16, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" { // ParseUint accepts a sign
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0
}

func parsePrefix(text string) (netip.Prefix, error) {
	addr, length, isBlock := strings.Cut(text, "/")
	a, err := netip.ParseAddr(addr)
	switch {
	case err != nil && looksLikeDomain(addr):
		return netip.Prefix{}, errDomain
	case err != nil:
		return netip.Prefix{}, errors.New("is no address, CIDR block or host:PORT")
	case a.Zone() != "":
		return netip.Prefix{}, errors.New("has a zone, which only its own host understands: leave it out")
	case a.Is4In6():
		return netip.Prefix{}, fmt.Errorf("is an IPv4 address in IPv6's form: write %s", a.Unmap())
	case !isBlock:
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(addr + "/" + length)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("has no prefix length from 0 to %d behind the slash", a.BitLen())
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("has bits behind its prefix length: write %s, or %s for the one address", p.Masked(), a)
	}
	return p, nil
}

// looksLikeDomain reports whether text has the letters of a domain name or pattern, and a letter among them.
func looksLikeDomain(text string) bool {
	text = strings.ToLower(strings.TrimPrefix(text, "*."))
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return !strings.HasPrefix(text, ".") && strings.ContainsAny(text, letters) && strings.Trim(text, letters+"0123456789.-_") == ""
}
