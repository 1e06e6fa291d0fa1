// Package inject parses the rules by which headers with secrets are added to the requests of a sandbox.
package inject

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/publicsuffix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
)

// Bounds in bytes: of a rule's header, and of the value of a secret.
const (
	MaxHeader = 4 << 10
	MaxValue  = 16 << 10
)

// Rule is a parsed InjectRule.
type Rule struct {
	// Host is a domain with one port of TCP.
	Host netentry.Entry
	// Name is the canonical name of the header.
	Name string
	// around are the parts of the header's value before, between and after the secret's.
	around []string
}

// Parse parses a rule of the secret with that name. Errors: a *Error.
func Parse(secret string, r *agboxv1.InjectRule) (Rule, error) {
	host, err := parseHost(r.GetHost())
	if err != nil {
		return Rule{}, &Error{"host", err.Error()}
	}
	name, around, err := parseHeader(secret, r.GetHeader())
	if err != nil {
		return Rule{}, &Error{"header", err.Error()}
	}
	return Rule{Host: host, Name: name, around: around}, nil
}

// Error is a mistake in a field of a rule, as the rest of a sentence.
type Error struct{ Field, Why string }

func (e *Error) Error() string { return e.Field + " " + e.Why }

const httpsPort = 443

func parseHost(text string) (netentry.Entry, error) {
	if text == "" {
		return netentry.Entry{}, errors.New("is required")
	}
	if strings.ContainsAny(text, " \t") {
		return netentry.Entry{}, errors.New("has blanks: write a domain, such as api.example.com")
	}
	if strings.Contains(text, "://") {
		return netentry.Entry{}, errors.New("is a URL: write its host alone, such as api.example.com")
	}
	e, err := netentry.Parse(text)
	switch {
	case err != nil:
		return e, err
	case e.Domain == "":
		return e, errors.New("is no domain: a server proves its name, not its address")
	case e.Protocol != "" || e.Ports.First != e.Ports.Last:
		return e, errors.New("takes one port at most, and no protocol: write api.example.com or api.example.com:8443")
	case e.Below && publicSuffix(e.Domain):
		return e, errors.New("covers names that anyone may register: name one of your own")
	case e.Ports.First == 53 || e.Ports.First == 853:
		return e, errors.New("has a port of DNS")
	}
	if e.Ports.First == 0 {
		e.Ports = netentry.Ports{First: httpsPort, Last: httpsPort}
	}
	e.Protocol = "tcp"
	return e, nil
}

// publicSuffix reports whether the names below a domain have owners of their own.
func publicSuffix(domain string) bool {
	suffix, _ := publicsuffix.PublicSuffix(domain)
	return suffix == domain
}

// reserved are headers that say how a message is to be read or passed on.
var reserved = []string{
	"Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func parseHeader(secret, text string) (name string, around []string, err error) {
	if text == "" {
		return "", nil, errors.New("is required")
	}
	if len(text) > MaxHeader {
		return "", nil, fmt.Errorf("is %d bytes; the limit is %d", len(text), MaxHeader)
	}
	name, value, ok := strings.Cut(text, ":")
	if !ok || !httpguts.ValidHeaderFieldName(name) {
		return "", nil, errors.New(`is not "Name: value"`)
	}
	name = http.CanonicalHeaderKey(name)
	if slices.Contains(reserved, name) {
		return "", nil, fmt.Errorf("sets %s, which belongs to the connection", name)
	}
	value = strings.Trim(value, " \t")
	if !printable(value) {
		return "", nil, errors.New("holds characters that are not printable ASCII")
	}
	around = strings.Split(value, "${"+secret+"}")
	for _, part := range around {
		if strings.Contains(part, "${") {
			return "", nil, fmt.Errorf("names another secret: write ${%s}, the one that the rule belongs to", secret)
		}
	}
	if len(around) == 1 {
		return "", nil, fmt.Errorf("does not contain ${%s}", secret)
	}
	return name, around, nil
}

// printable reports whether a text is of printable ASCII and blanks.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// Covers reports whether a rule is for a name, in lower case and without the final dot, at a port.
func (r Rule) Covers(name string, port uint16) bool {
	return r.Host.Ports.First == port && r.Host.Names(name)
}

// Value returns the header's value with that of the secret, without its final newlines. Errors, as sentences without any of it: as of Unfit.
func (r Rule) Value(secret []byte) (string, error) {
	if why := Unfit(secret); why != "" {
		return "", errors.New("it " + why)
	}
	return strings.Join(r.around, valueOf(secret)), nil
}

func valueOf(secret []byte) string { return strings.TrimRight(string(secret), "\r\n") }

// Unfit returns why a secret cannot be part of a header, as the rest of a sentence without any of it; "": it can.
func Unfit(secret []byte) string {
	switch text := valueOf(secret); {
	case text == "":
		return "is empty"
	case len(text) > MaxValue:
		return fmt.Sprintf("has more than %d bytes", MaxValue)
	case !printable(text):
		return "is not one line of printable ASCII"
	}
	return ""
}

// Has reports whether a spec has rules.
func Has(spec *agboxv1.CreateSpec) bool {
	return slices.ContainsFunc(spec.GetSecrets(), func(s *agboxv1.SecretSpec) bool { return len(s.GetInject()) > 0 })
}

// Hosts returns the destinations of the rules of a spec that validate accepts.
func Hosts(spec *agboxv1.CreateSpec) (hosts []netentry.Entry) {
	for _, s := range spec.GetSecrets() {
		for _, r := range s.GetInject() {
			if host, err := parseHost(r.GetHost()); err == nil {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}
