package agent

import (
	"strings"
	"testing"
)

func TestLastLine(t *testing.T) {
	envs := map[string]string{"KEY": "hunter22", "PEM": "-----BEGIN\nabcdef\nghijkl-END"}
	for name, c := range map[string]struct{ tail, want string }{
		"nothing":                          {"", ""},
		"nothing to read":                  {"\n \n---\n}\n", ""},
		"one line":                         {"Error: no API key\n", "Error: no API key"},
		"a line without an end":            {"one\ntwo", "two"},
		"lines without words are left out": {"Error: no API key\n}\n\n  \t\n", "Error: no API key"},
		"spaces are one":                   {"\t at\t line   7 \r\n", "at line 7"},
		"colours":                          {"\x1b[1;31mError\x1b[0m: no\x1b[K key", "Error: no key"},
		"controls and bidi":                {"a\x00b\x07c \u202egnp.exe\u2066 \u200bx", "abc gnp.exe x"},
		"no UTF-8, cut in a character":     {"\x9f\x98\x80 left \xff over", "left over"},
		"a secret":                         {"bad key hunter22!", "bad key [redacted]!"},
		"a secret with noise in it":        {"bad key hun\x00ter\x1b[0m22!", "bad key [redacted]!"},
		"the last line of a secret":        {"bad key:\n-----BEGIN\nabcdef\nghijkl-END\n", "[redacted]"},
		"the end of a secret at the beginning of the tail": {"ghijkl-END", "[redacted]"},
		"200 characters": {strings.Repeat("ä", 200), strings.Repeat("ä", 200)},
		"more":           {strings.Repeat("ä", 201), strings.Repeat("ä", 197) + "..."},
	} {
		if got := lastLine([]byte(c.tail), nil, envs); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
