package termsafe

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns an untrusted text with its control sequences and unseen characters escaped, as a Writer in Plain mode writes it. Line feeds
// and tabs stay.
func Text(s string) string {
	if !strings.ContainsFunc(s, suspect) && utf8.ValidString(s) {
		return s
	}
	w := Writer{}
	w.filter([]byte(s), true)
	return string(w.out)
}

var blanks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// Line is Text for one line: line ends and tabs become blanks.
func Line(s string) string { return Text(blanks.Replace(s)) }

// JSON writes the characters of a JSON text that a terminal interprets or does not show, and that JSON need not escape, as JSON escapes. JSON
// has them in strings only.
func JSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, suspect) {
		return text
	}
	var out []byte
	var last rune
	for _, r := range string(text) {
		switch {
		case r >= 0x7f && (unseen(r, last) || isControl(r)):
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
			last = 0
		default:
			out, last = utf8.AppendRune(out, r), r
		}
	}
	return out
}

// suspect reports whether a text with the character has to be looked at.
func suspect(r rune) bool { return isControl(r) || unseen(r, 0) }

// isControl reports whether r is a control character of ASCII or of C1, DEL included.
func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// unseen reports characters that no terminal shows, but that change what it shows: the direction of text, line ends, or nothing at all, so that
// two names look the same. A joiner is shown as a part of an emoji or of a letter of many scripts, but not after ASCII.
func unseen(r, last rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	switch {
	case r < 0xa0:
		return false
	case r == nonJoiner || r == joiner:
		return last < utf8.RuneSelf
	case unicode.In(r, unicode.Zl, unicode.Zp):
		return true
	}
	return unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}
