package hostfiles

import (
	"errors"
	"fmt"
	"strings"
)

// byteSet is the set of bytes that a bracket expression matches.
type byteSet [256]bool

var errOpenBracket = errors.New(`has a "[" without its "]"; write "\[" for the character itself`)

// parseBracket parses the bracket expression at the start of p by git's rules: ! or ^ negates, ] is literal when first,
// a backslash escapes, [:class:] are the POSIX classes over ASCII, and no expression matches a slash. n is its length.
func parseBracket(p string) (set byteSet, n int, err error) {
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	low := -1 // the start of a range if "-" follows
	for first := true; first || i < len(p) && p[i] != ']'; first = false {
		i, low, err = set.parseItem(p, i, low)
		if err != nil {
			return set, 0, err
		}
	}
	if i >= len(p) {
		return set, 0, errOpenBracket
	}
	set.finish(negated)
	if set == (byteSet{}) {
		return set, 0, fmt.Errorf("has %s, which matches nothing", p[:i+1])
	}
	return set, i + 1, nil
}

// parseItem parses one character, range or class at p[i] and returns the index after it.
func (set *byteSet) parseItem(p string, i, low int) (next, newLow int, err error) {
	if i >= len(p) {
		return 0, 0, errOpenBracket
	}
	if strings.HasPrefix(p[i:], "[:") {
		if end := strings.IndexByte(p[i+2:], ']'); end < 0 {
			return 0, 0, errOpenBracket
		} else if end > 0 && p[i+2+end-1] == ':' {
			return i + 2 + end + 1, -1, set.addClass(p[i+2 : i+2+end-1])
		}
	}
	isRange := p[i] == '-' && low >= 0 && i+1 < len(p) && p[i+1] != ']'
	if isRange {
		i++
	}
	if p[i] == '\\' {
		i++
	}
	if i >= len(p) {
		return 0, 0, errOpenBracket
	}
	if !isRange {
		low = int(p[i])
		set[low] = true
		return i + 1, low, nil
	}
	for b := low; b <= int(p[i]); b++ {
		set[b] = true
	}
	return i + 1, -1, nil
}

func (set *byteSet) finish(negated bool) {
	for b := range set {
		set[b] = set[b] != negated
	}
	set['/'] = false
}

// write writes the set as a bracket expression of doublestar, with everything escaped.
func (set *byteSet) write(out *strings.Builder) {
	out.WriteByte('[')
	for low := 0; low < len(set); low++ {
		if !set[low] {
			continue
		}
		high := low
		for high+1 < len(set) && set[high+1] {
			high++
		}
		writeLiteral(out, byte(low))
		out.WriteByte('-')
		writeLiteral(out, byte(high))
		low = high
	}
	out.WriteByte(']')
}

// classes are the ranges of the POSIX classes, over ASCII.
var classes = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\x00\x1f\x7f\x7f", "digit": "09", "graph": "!~",
	"lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "  \t\r", "upper": "AZ", "xdigit": "09AFaf",
}

func (set *byteSet) addClass(name string) error {
	ranges, ok := classes[name]
	if !ok {
		return fmt.Errorf("has the unknown class [:%s:]", name)
	}
	for i := 0; i < len(ranges); i += 2 {
		for b := int(ranges[i]); b <= int(ranges[i+1]); b++ {
			set[b] = true
		}
	}
	return nil
}
