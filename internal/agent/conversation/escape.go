package conversation

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// delimiter is whatever a reader might take for a tag of the frame: an opening bracket, up to 16 characters that are neither
// letters, digits nor brackets (a slash, spaces, what is invisible), and the word that all our tags begin with.
var delimiter = regexp.MustCompile(`(?i)<([^\p{L}\p{N}<>]{0,16}agbox)`)

// Escape returns text in which nothing looks like a tag of the frame. All other text stays as it is, other tags too.
func Escape(text string) string {
	return delimiter.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "&lt;$1")
}

// shorten returns text of at most limit characters, with its beginning and its end and, between them, how much is missing.
// The result of escaped text is as safe as the text: what stands between has a number right after its bracket.
func shorten(text string, limit int) string {
	size := utf8.RuneCountInString(text)
	if size <= limit {
		return text
	}
	mark := fmt.Sprintf("\n[%d characters left out]\n", size-limit)
	room := limit - len(mark) - 2 // the number may get longer by what the mark takes
	if room < 16 {
		return string([]rune(text)[:max(limit, 0)])
	}
	runes := []rune(text)
	tail := room / 3
	head := room - tail
	mark = fmt.Sprintf("\n[%d characters left out]\n", size-head-tail)
	return string(runes[:head]) + mark + string(runes[size-tail:])
}
