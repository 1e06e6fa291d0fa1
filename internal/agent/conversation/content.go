package conversation

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Limits of the quoted tool call, of its result and of an error, in characters.
const (
	maxCall   = 160
	maxResult = 120
	maxNote   = 300
)

// content returns the text of a message: adjacent text parts concatenated, and each tool call with its result as one line.
// Reasoning is left out. A result belongs to the last preceding call with its ID, and the newest result wins.
func content(parts map[uint32]*agboxv1.AgentMessagePart) string {
	type call struct {
		line int
		part *agboxv1.AgentMessagePart
	}
	var lines [][]byte
	calls := map[string]call{}
	inText := false
	for _, n := range slices.Sorted(maps.Keys(parts)) {
		p := parts[n]
		isText := p.GetKind() == "text"
		if !isText || !inText {
			lines = append(lines, nil)
		}
		last := len(lines) - 1
		switch c, called := calls[p.GetToolCallId()]; {
		case isText:
			lines[last] = append(lines[last], p.GetText()...)
		case p.GetKind() == "tool_call":
			calls[p.GetToolCallId()] = call{last, p}
			lines[last] = toolLine(p, nil)
		case p.GetKind() == "tool_result" && called:
			lines[c.line] = toolLine(c.part, p)
		case p.GetKind() == "tool_result":
			lines[last] = []byte("[result" + named(p) + ": " + OneLine(p.GetText(), maxResult) + "]")
		}
		inText = isText
	}
	var text []byte
	for _, line := range lines {
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(text, line...)
	}
	return strings.Trim(string(text), "\n")
}

func toolLine(call, result *agboxv1.AgentMessagePart) []byte {
	line := "[tool" + named(call)
	if input := OneLine(call.GetText(), maxCall); input != "" {
		line += ": " + input
	}
	if output := OneLine(result.GetText(), maxResult); output != "" {
		line += " => " + output
	}
	return []byte(line + "]")
}

func named(p *agboxv1.AgentMessagePart) string {
	if name := OneLine(p.GetToolName(), maxResult); name != "" {
		return " " + name
	}
	return ""
}

// OneLine returns text as one line of at most limit characters: runs of white space become one space, and truncation is
// marked by an ellipsis.
func OneLine(text string, limit int) string {
	// Bounds the work for a long text.
	if most := 64 * limit; len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}

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
	size := count(text)
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
