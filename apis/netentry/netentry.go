// Package netentry parses the entries of a network policy: "10.0.0.0/8", "10.0.0.5:5432/tcp", "[2001:db8::1]:443", "host:8080",
// "api.github.com:443", "*.github.com".
package netentry

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Entry is the destination that one entry of a policy names.
type Entry struct {
	// Prefix has no bits behind its length. It is invalid if Host or Domain is set.
	Prefix netip.Prefix
	// Host is the sandbox's host, at any of its addresses.
	Host bool
	// Domain is a name in lower case, in ASCII and without the final dot. With Below the entry names every name below it, and not itself.
	Domain string
	Below  bool
	// Ports are the destination ports; the zero value is all of them, and protocols without ports too.
	Ports Ports
	// Protocol is "tcp", "udp", or empty: with Ports both, without any protocol.
	Protocol string
}

// Ports is a range of ports, its ends included. First is 0 only in the zero value.
type Ports struct{ First, Last uint16 }

// HostWord is the target that means the sandbox's host.
const HostWord = "host"

// Bounds of DNS on the characters of a name and of a label.
const (
	maxName  = 253
	maxLabel = 63
)

// Parse reads an entry: a target, optionally ":port" or ":first-last", optionally "/tcp" or "/udp". A target is an address, a CIDR block,
// a domain name, "*." and a domain name, or "host", which needs a port. IPv6 targets with a port are in brackets. The error continues a
// sentence that begins with the entry.
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
	if looksLikeDomain(target) {
		e.Domain, e.Below, err = parseDomain(target)
	} else {
		e.Prefix, err = parsePrefix(target)
	}
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
	case err != nil:
		return netip.Prefix{}, errors.New("is no address, CIDR block, domain or host:PORT")
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

// Names reports whether the domain of an entry is a name, or with Below one above it. The name is in lower case and without the final dot.
func (e Entry) Names(name string) bool {
	if e.Below {
		return strings.HasSuffix(name, "."+e.Domain)
	}
	return e.Domain != "" && name == e.Domain
}

// NamesAll reports whether an entry names all that another one does.
func (e Entry) NamesAll(other Entry) bool {
	if other.Below {
		return e.Below && (e.Domain == other.Domain || e.Names(other.Domain))
	}
	return e.Names(other.Domain)
}

// looksLikeDomain reports whether text is no address, not even a misspelled one: these end with a number.
func looksLikeDomain(text string) bool {
	if text == "" || strings.ContainsAny(text, ":/%") {
		return false
	}
	text = strings.TrimRight(text, ".")
	last := text[strings.LastIndexByte(text, '.')+1:]
	return strings.Trim(last, "0123456789") != ""
}

func parseDomain(text string) (domain string, below bool, err error) {
	domain, below = strings.CutPrefix(text, "*.")
	domain = strings.TrimSuffix(domain, ".")
	longest := maxName
	if below {
		longest -= len("x.")
	}
	if domain, err = ascii(domain); err != nil {
		return "", false, err
	}
	if len(domain) > longest {
		return "", false, fmt.Errorf("is longer than the %d characters of a domain name", maxName)
	}
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		switch {
		case label == "":
			return "", false, errors.New("has nothing between two dots, or in front of the first: write api.github.com or *.github.com")
		case len(label) > maxLabel:
			return "", false, fmt.Errorf("has more than %d characters between two dots", maxLabel)
		case strings.Contains(label, "*"):
			return "", false, errors.New("has a star in another place than the first: write *.github.com for all names below github.com")
		case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return "", false, errors.New("has a character that no domain name has: write api.github.com or *.github.com")
		}
	}
	if len(labels) == 1 && !below {
		return "", false, errors.New("is a name without a dot: write a domain like api.github.com, or host:PORT for the sandbox's host")
	}
	return domain, below, nil
}

// ascii returns a name in lower case, in the form in which DNS asks for it.
func ascii(name string) (string, error) {
	name = strings.ToLower(name)
	if strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return name, nil
	}
	encoded, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return "", errors.New("is no internationalized domain name: write it as DNS has it, like xn--bcher-kva.example")
	}
	return encoded, nil
}
