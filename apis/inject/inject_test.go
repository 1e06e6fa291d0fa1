package inject_test

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
)

func rule(host, header string) *agboxv1.InjectRule {
	return &agboxv1.InjectRule{Host: host, Header: header}
}

func TestParseRefuses(t *testing.T) {
	const good = "Authorization: Bearer ${k}"
	for _, tc := range []struct {
		rule *agboxv1.InjectRule
		want string
	}{
		{rule("", good), "host is required"},
		{rule("10.0.0.1", good), "host is no domain"},
		{rule("host:80", good), "host is no domain"},
		{rule("api", good), "host is a name without a dot"},
		{rule("a.example/tcp", good), "host takes one port at most"},
		{rule("a.example:1-2", good), "host takes one port at most"},
		{rule("a.example:53", good), "host has a port of DNS"},
		{rule("https://a.example", good), "host "},
		{rule("*.github.io", good), "host covers names that anyone may register"},
		{rule("*.co.uk", good), "host covers names that anyone may register"},
		{rule("a.example", ""), "header is required"},
		{rule("a.example", "${k}"), `header is not "Name: value"`},
		{rule("a.example", "A B: ${k}"), `header is not "Name: value"`},
		{rule("a.example", ": ${k}"), `header is not "Name: value"`},
		{rule("a.example", "host: ${k}"), "header sets Host, which"},
		{rule("a.example", "transfer-encoding: ${k}"), "header sets Transfer-Encoding, which"},
		{rule("a.example", "X: k"), "header does not contain ${k}"},
		{rule("a.example", "X: ${k} ${l}"), "header names another secret: write ${k}"},
		{rule("a.example", "X: ${K}"), "header names another secret: write ${k}"},
		{rule("a.example", "X: a\r\nY: ${k}"), "header holds characters"},
		{rule("a.example", "X: ü${k}"), "header holds characters"},
		{rule("a.example", "X: "+strings.Repeat("x", inject.MaxHeader)+"${k}"), "header is 4103 bytes; the limit is 4096"},
	} {
		if _, err := inject.Parse("k", tc.rule); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %s", tc.rule, err, tc.want)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tc := range []struct {
		host, name string
		port       uint16
		want       bool
	}{
		{"a.example", "a.example", 443, true}, {"A.Example:8443", "a.example", 8443, true}, {"a.example:8443", "a.example", 443, false},
		{"a.example", "b.a.example", 443, false}, {"*.a.example", "b.a.example", 443, true}, {"*.a.example", "a.example", 443, false},
		{"*.a.example", "xa.example", 443, false}, {"a.example", "", 443, false},
	} {
		r, err := inject.Parse("k", rule(tc.host, "X: ${k}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Covers(tc.name, tc.port); got != tc.want {
			t.Errorf("%s covers %s:%d: %t", tc.host, tc.name, tc.port, got)
		}
	}
}

func TestValue(t *testing.T) {
	r, err := inject.Parse("k.1", rule("a.example", "x-api-key:  a ${k.1}, ${k.1} b "))
	if err != nil || r.Name != "X-Api-Key" {
		t.Fatal(r.Name, err)
	}
	for value, want := range map[string]string{
		"v": "a v, v b", "v w\r\n\n": "a v w, v w b", "${k.1}": "a ${k.1}, ${k.1} b",
		"": "", "\n": "", "a\nb": "", "a\x00": "", "ü": "", "\x7f": "", strings.Repeat("x", inject.MaxValue+1): "",
	} {
		got, err := r.Value([]byte(value))
		if (err == nil) != (want != "") || got != want {
			t.Errorf("%.20q: %.40q, %v", value, got, err)
		}
		if err != nil && value != "" && len(value) < 3 && strings.Contains(err.Error(), value) && value != "\n" {
			t.Errorf("%q is in %q", value, err)
		}
	}
}
