package hostfiles

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/containerd/errdefs"
)

// rule is one line of .gitignore.
type rule struct {
	negated  bool
	dirOnly  bool
	baseOnly bool   // matched against the last element of the path, at any depth
	pattern  string // for doublestar, with bytes encoded as runes; see widen
}

// excludes are the rules of a copy. The last matching rule decides; entries of an excluded directory are never matched, so no
// rule can include them again, as with git.
type excludes []rule

func parseExcludes(patterns []string) (excludes, error) {
	var rules excludes
	for _, p := range patterns {
		r, ok, err := parseRule(p)
		if err != nil {
			return nil, fmt.Errorf("exclude pattern %q %w: %w", p, err, errdefs.ErrInvalidArgument)
		}
		if ok {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// match reports whether rel, a path below the source, is excluded by a rule of its own.
func (e excludes) match(rel string, isDir bool) bool {
	if len(e) == 0 {
		return false
	}
	full := widen(rel)
	base := path.Base(full)
	for i := len(e) - 1; i >= 0; i-- {
		r, name := e[i], full
		if r.baseOnly {
			name = base
		}
		if (isDir || !r.dirOnly) && doublestar.MatchUnvalidated(r.pattern, name) {
			return !r.negated
		}
	}
	return false
}

// Excluded reports whether patterns exclude the directory rel, a path below the source of a copy, or one of its parents. Patterns
// that do not parse exclude nothing.
func Excluded(patterns []string, rel string) bool {
	rules, err := parseExcludes(patterns)
	if err != nil {
		return false
	}
	for i := range len(rel) + 1 {
		if (i == len(rel) || rel[i] == '/') && rules.match(rel[:i], true) {
			return true
		}
	}
	return false
}

// parseRule parses a line of .gitignore; !ok for a blank line or a comment. A pattern that git accepts and that could
// never match is an error: its author believes that it excludes something.
func parseRule(line string) (r rule, ok bool, err error) {
	line = trimSpaces(line)
	if line == "" || line[0] == '#' {
		return rule{}, false, nil
	}
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.baseOnly = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return rule{}, false, errors.New("matches nothing: it has no name")
	}
	if r.pattern, err = translate(line, r.baseOnly); err == nil && slices.Contains(strings.Split(r.pattern, "/"), "") {
		err = errors.New("matches nothing: it has two slashes in a row")
	}
	return r, true, err
}

// trimSpaces removes trailing spaces, unless escaped by a backslash.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if s[i] == ' ' {
			continue
		}
		end = min(i+1, len(s))
	}
	return s[:end]
}

// translate converts a git pattern to doublestar's syntax, which has the same * ? ** but other brackets, and braces.
func translate(p string, baseOnly bool) (string, error) {
	var out strings.Builder
	for i := 0; i < len(p); {
		switch p[i] {
		case '*':
			end := i + len(p[i:]) - len(strings.TrimLeft(p[i:], "*"))
			out.WriteString(stars(p, i, end, baseOnly))
			i = end
		case '?', '/':
			out.WriteByte(p[i])
			i++
		case '[':
			set, n, err := parseBracket(p[i:])
			if err != nil {
				return "", err
			}
			set.write(&out)
			i += n
		case '\\':
			i++
			if i == len(p) {
				return "", errors.New(`ends in a backslash; write "\\" for the character itself`)
			}
			fallthrough
		default:
			writeLiteral(&out, p[i])
			i++
		}
	}
	return out.String(), nil
}

// stars translates the run of stars p[i:end]. Several stars differ from one only as a whole path element;
// at the end they match the entries of a directory, not the directory.
func stars(p string, i, end int, baseOnly bool) string {
	first, last := i == 0 || p[i-1] == '/', end == len(p) || p[end] == '/'
	switch {
	case end-i == 1 || baseOnly || !first || !last:
		return "*"
	case end == len(p):
		return "**/*"
	default:
		return "**"
	}
}

// writeLiteral writes one byte, escaped.
func writeLiteral(out *strings.Builder, b byte) {
	if b != '/' {
		out.WriteByte('\\')
	}
	out.WriteRune(rune(b))
}

// widen encodes each byte as the rune of its value, since git matches bytes and doublestar runes; names need not be UTF-8.
func widen(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0 {
		return s
	}
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(rune(s[i]))
	}
	return out.String()
}
