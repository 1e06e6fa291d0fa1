package termsafe_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/termsafe"
)

func filtered(t testing.TB, mode termsafe.Mode, parts ...[]byte) string {
	t.Helper()
	var out bytes.Buffer
	w := termsafe.New(&out, mode)
	for _, p := range parts {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatalf("%d of %d, %v", n, len(p), err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestControlSequencesAreEscaped(t *testing.T) {
	for in, want := range map[string]struct{ plain, live string }{
		"plain text, ünïcode 日本\n\tx\r\n":          {"plain text, ünïcode 日本\n\tx\r\n", "plain text, ünïcode 日本\n\tx\r\n"},
		"\x1b[31mred\x1b[0m\n":                     {"^[[31mred^[[0m\n", "\x1b[31mred\x1b[0m\n"},
		"\x1b[38;2;1;2;3mred\x1b[m":                {"^[[38;2;1;2;3mred^[[m", "\x1b[38;2;1;2;3mred\x1b[m"},
		"\x1b[1mbold":                              {"^[[1mbold", "\x1b[1mbold\x1b[0m"},
		"10%\r20%\n":                               {"10%^M20%\n", "10%\r20%\n"},
		"\x1b]52;c;cm0gLXJm\x07":                   {"^[]52;c;cm0gLXJm^G", "^[]52;c;cm0gLXJm^G"},
		"\x1b]0;title\x1b\\":                       {"^[]0;title^[\\", "^[]0;title^[\\"},
		"\x1bP+q544e\x1b\\":                        {"^[P+q544e^[\\", "^[P+q544e^[\\"},
		"\x1b[2J\x1b[H\x1b[6n":                     {"^[[2J^[[H^[[6n", "^[[2J^[[H^[[6n"},
		"\x1b[?25l\x1bc":                           {"^[[?25l^[c", "^[[?25l^[c"},
		"\x1b[>4;1m":                               {"^[[>4;1m", "^[[>4;1m"}, // xterm's key modifiers
		"\u009b31m\u009d52;c\u009c":                {`\x9b31m\x9d52;c\x9c`, `\x9b31m\x9d52;c\x9c`},
		"\x9b31m\xff\xc3":                          {`\x9b31m\xff\xc3`, `\x9b31m\xff\xc3`},
		"a\b\x7f\x00\x0e":                          {"a^H^?^@^N", "a^H^?^@^N"},
		"x \u202etxt.exe\u2069":                    {`x \u202etxt.exe\u2069`, `x \u202etxt.exe\u2069`},
		"\x1b":                                     {"^[", "^["},
		"\x1b[" + strings.Repeat("1;", 100) + "mx": {"^[[" + strings.Repeat("1;", 100) + "mx", "^[[" + strings.Repeat("1;", 100) + "mx"},
		"\x1b[1\x1b[31mx":                          {"^[[1^[[31mx", "^[[1\x1b[31mx\x1b[0m"},
		"\r":                                       {"^M", "\r"},
		"\x1b[31\n":                                {"^[[31\n", "^[[31\n"},
		"\xe6\x97":                                 {`\xe6\x97`, `\xe6\x97`},
		"line\u2028separator":                      {`line\u2028separator`, `line\u2028separator`},
		"\ufeff":                                   {`\ufeff`, `\ufeff`},
		"pr\u200bod\u200d \u200c":                  {`pr\u200bod\u200d \u200c`, `pr\u200bod\u200d \u200c`},
		"👩\u200d👩\u200d👧 नमस्ते क\u200dष می\u200cخواهم": {"👩\u200d👩\u200d👧 नमस्ते क\u200dष می\u200cخواهم", "👩\u200d👩\u200d👧 नमस्ते क\u200dष می\u200cخواهم"},
		"ls\U000e0072\U000e006d":                     {`ls\U000e0072\U000e006d`, `ls\U000e0072\U000e006d`},
		"\x1b[0;31mx\x1b[00m":                        {"^[[0;31mx^[[00m", "\x1b[0;31mx\x1b[00m\x1b[0m"},
		"\xc2\x9b2J and \xc2":                        {`\x9b2J and \xc2`, `\x9b2J and \xc2`},
		"\x1b[31mx\x1b[0m" + "\x1b[32my" + "\x1b[0m": {"^[[31mx^[[0m^[[32my^[[0m", "\x1b[31mx\x1b[0m\x1b[32my\x1b[0m"},
	} {
		if got := filtered(t, termsafe.Plain, []byte(in)); got != want.plain {
			t.Errorf("plain: %q becomes %q, want %q", in, got, want.plain)
		}
		if got := filtered(t, termsafe.Live, []byte(in)); got != want.live {
			t.Errorf("live: %q becomes %q, want %q", in, got, want.live)
		}
	}
}

// safe is all that may reach a terminal, besides printable text.
var safe = map[termsafe.Mode]*regexp.Regexp{
	termsafe.Plain: regexp.MustCompile(`\A(\r\n|[\n\t]|[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}])*\z`),
	termsafe.Live:  regexp.MustCompile(`\A(\x1b\[[0-9;:]{0,61}m|[\n\t\r]|[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}])*\z`),
}

// FuzzWriter: the output is safe, and does not depend on how the input is split into writes.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m\x1b]52;c;x\x07\x9b2J\u009b\r\nx\r"), 3)
	f.Add([]byte("\xe6\x97\xa5\x1b[1;2"), 1)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		for mode, form := range safe {
			whole := filtered(t, mode, in)
			if !form.MatchString(whole) {
				t.Errorf("mode %d lets %q through", mode, whole)
			}
			var parts [][]byte
			size := max(1, cut%7)
			for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				parts = append(parts, rest[:min(size, len(rest))])
			}
			if cutUp := filtered(t, mode, parts...); cutUp != whole {
				t.Errorf("mode %d: in pieces of %d %q, whole %q", mode, size, cutUp, whole)
			}
		}
	})
}
