package netentry_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/agbox/agbox/apis/netentry"
)

// longest is a name of 253 characters.
var longest = strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example.x"

func TestParse(t *testing.T) {
	prefix := netip.MustParsePrefix
	ports := func(first, last uint16) netentry.Ports { return netentry.Ports{First: first, Last: last} }
	for text, want := range map[string]netentry.Entry{
		"10.0.0.5":                  {Prefix: prefix("10.0.0.5/32")},
		"10.0.0.0/8":                {Prefix: prefix("10.0.0.0/8")},
		"0.0.0.0/0":                 {Prefix: prefix("0.0.0.0/0")},
		"10.0.0.5:5432":             {Prefix: prefix("10.0.0.5/32"), Ports: ports(5432, 5432)},
		"10.0.0.5:5432/tcp":         {Prefix: prefix("10.0.0.5/32"), Ports: ports(5432, 5432), Protocol: "tcp"},
		"10.0.0.0/8:1-65535/udp":    {Prefix: prefix("10.0.0.0/8"), Ports: ports(1, 65535), Protocol: "udp"},
		"10.0.0.0/8/udp":            {Prefix: prefix("10.0.0.0/8"), Protocol: "udp"},
		"2001:db8::1":               {Prefix: prefix("2001:db8::1/128")},
		"2001:db8::1:443":           {Prefix: prefix("2001:db8::1:443/128")}, // a port needs brackets
		"2001:db8::/32":             {Prefix: prefix("2001:db8::/32")},
		"[2001:db8::1]:443/tcp":     {Prefix: prefix("2001:db8::1/128"), Ports: ports(443, 443), Protocol: "tcp"},
		"[2001:db8::/32]:8000-8080": {Prefix: prefix("2001:db8::/32"), Ports: ports(8000, 8080)},
		"[::]/tcp":                  {Prefix: prefix("::/128"), Protocol: "tcp"},
		"host:8080":                 {Host: true, Ports: ports(8080, 8080)},
		"host:8000-8080/tcp":        {Host: true, Ports: ports(8000, 8080), Protocol: "tcp"},
		"api.github.com":            {Domain: "api.github.com"},
		"API.GitHub.com.":           {Domain: "api.github.com"},
		"api.github.com:443":        {Domain: "api.github.com", Ports: ports(443, 443)},
		"api.github.com:1-9/udp":    {Domain: "api.github.com", Ports: ports(1, 9), Protocol: "udp"},
		"api.github.com/tcp":        {Domain: "api.github.com", Protocol: "tcp"},
		"*.github.com:443/tcp":      {Domain: "github.com", Below: true, Ports: ports(443, 443), Protocol: "tcp"},
		"*.com":                     {Domain: "com", Below: true},
		"host.example":              {Domain: "host.example"},
		"1.0.0.10.in-addr.arpa":     {Domain: "1.0.0.10.in-addr.arpa"},
		"_sip.3com-x.example":       {Domain: "_sip.3com-x.example"},
		"Bücher.example":            {Domain: "xn--bcher-kva.example"},
		"*.bücher.example:443":      {Domain: "xn--bcher-kva.example", Below: true, Ports: ports(443, 443)},
		"bücher。example":            {Domain: "xn--bcher-kva.example"},
		longest:                     {Domain: longest},
		"*." + longest[2:]:          {Domain: longest[2:], Below: true},
	} {
		if got, err := netentry.Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "no address",
		"host":                               "needs a port",
		"host/tcp":                           "needs a port",
		"host:":                              "a port that is none",
		"host:0":                             "a port that is none",
		"host:65536":                         "a port that is none",
		"host:+1":                            "a port that is none",
		"host:9-8":                           "a port that is none",
		"host:1-2-3":                         "a port that is none",
		"localhost:80":                       "without a dot",
		"Host:80":                            "host:PORT",
		"*.":                                 "between two dots",
		"*":                                  "a star in another place",
		"*github.com":                        "a star in another place",
		"a.*.github.com":                     "a star in another place",
		"*.*.github.com":                     "a star in another place",
		".github.com":                        "in front of the first",
		"api..github.com":                    "between two dots",
		"api.github.com..":                   "between two dots",
		"api.github.com/x":                   "no address",
		"api.github.com:x":                   "a port that is none",
		"https://github.com":                 "a port that is none",
		"api github.com":                     "a character that no domain name has",
		`api\.github.com`:                    "a character that no domain name has",
		"api.github.com\n":                   "a character that no domain name has",
		"-\u200d.example":                    "write it as DNS has it",
		"a" + longest:                        "longer than the 253 characters",
		"*." + longest:                       "longer than the 253 characters",
		"*." + longest[1:]:                   "longer than the 253 characters",
		strings.Repeat("a", 64) + ".example": "more than 63 characters",
		"10.0.0.5/8":                         "write 10.0.0.0/8, or 10.0.0.5 for the one address",
		"10.0.0.0/33":                        "no prefix length from 0 to 32",
		"10.0.0.0/":                          "no prefix length from 0 to 32",
		"10.0.0.0/08":                        "no prefix length from 0 to 32",
		"10.0.0":                             "no address",
		"010.0.0.1":                          "no address",
		"10.0.0.5:80/icmp":                   "a port that is none",
		"10.0.0.5/tcp:80":                    "no prefix length",
		"::ffff:10.0.0.5":                    "write 10.0.0.5",
		"::ffff:10.0.0.0/104":                "write 10.0.0.0",
		"fe80::1%eth0":                       "has a zone",
		"[10.0.0.5]:80":                      "brackets",
		"[2001:db8::1":                       "brackets",
		"[2001:db8::1]80":                    "behind the brackets",
		"[2001:db8::1]:":                     "a port that is none",
		"10.0.0.5,10.0.0.6":                  "no address",
	} {
		if e, err := netentry.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, e, err, want)
		}
	}
}

// Whatever parses is one destination that a rule can hold.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"10.0.0.0/8:1-2/tcp", "[2001:db8::/32]:443", "host:80/udp", "*.x:9", "a.b.", "Bücher.example", "::ffff:1.2.3.4/100"} {
		f.Add(text)
	}
	f.Add("10.0.0.5 ")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := netentry.Parse(text)
		if err != nil {
			return
		}
		switch a := e.Prefix.Addr(); {
		case e.Domain != "" && (e.Host || e.Prefix.IsValid() || len(e.Domain) > 253 || e.Domain != strings.ToLower(e.Domain)), e.Below && e.Domain == "",
			e.Domain == "" && e.Host == e.Prefix.IsValid(), e.Ports.First > e.Ports.Last, e.Ports.First == 0 && e.Ports.Last != 0:
			t.Errorf("%q: %+v", text, e)
		case e.Prefix.IsValid() && (e.Prefix != e.Prefix.Masked() || a.Is4In6() || a.Zone() != ""):
			t.Errorf("%q: %+v", text, e)
		}
	})
}

func TestNames(t *testing.T) {
	entry := func(text string) netentry.Entry {
		e, err := netentry.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for text, names := range map[string]map[string]bool{
		"a.example":   {"a.example": true, "b.a.example": false, "a.example.": false, "": false, "xa.example": false},
		"*.a.example": {"a.example": false, "b.a.example": true, "c.b.a.example": true, "ba.example": false, "": false, ".a.example": true},
		"1.1.1.1":     {"": false, "1.1.1.1": false},
		"host:1":      {"": false, "host": false},
	} {
		for name, want := range names {
			if got := entry(text).Names(name); got != want {
				t.Errorf("%s names %q: %v", text, name, got)
			}
		}
	}
	for text, all := range map[string]map[string]bool{
		"a.example":   {"a.example": true, "*.a.example": false, "b.a.example": false, "1.1.1.1": false},
		"*.a.example": {"a.example": false, "*.a.example": true, "b.a.example": true, "*.b.a.example": true, "*.example": false, "1.1.1.1": false},
		"1.1.1.1":     {"1.1.1.1": false, "a.example": false},
	} {
		for other, want := range all {
			if got := entry(text).NamesAll(entry(other)); got != want {
				t.Errorf("%s names all of %s: %v", text, other, got)
			}
		}
	}
}
