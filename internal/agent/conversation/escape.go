package conversation

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// delimiter matches anything that a reader might take for a tag of the frame: an opening bracket, any characters but letters, digits and
// brackets (a slash, spaces, invisible characters), and the prefix of all frame tags.
var delimiter = regexp.MustCompile(`(?i)<([^\p{L}\p{N}<>]*agbox)`)

// Escape replaces everything in text that resembles a tag of the frame. All other text is unchanged, including other tags.
func Escape(text string) string {
	return delimiter.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "&lt;$1")
}

// shorten returns text of at most limit characters: its start, the number of dropped characters, and its end. Escaped text
// stays safe: the inserted mark has a digit right after its bracket.
func shorten(text string, limit int) string {
	size := utf8.RuneCountInString(text)
	if size <= limit {
		return text
	}
	mark := fmt.Sprintf("\n[%d characters left out]\n", size-limit)
	room := limit - len(mark) - 2 // the number may get longer, since the mark takes space, too
	if room < 16 {
		return string([]rune(text)[:max(limit, 0)])
	}
	runes := []rune(text)
	tail := room / 3
	head := room - tail
	mark = fmt.Sprintf("\n[%d characters left out]\n", size-head-tail)
	return string(runes[:head]) + mark + string(runes[size-tail:])
}
