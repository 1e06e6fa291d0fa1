package hostfiles

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
)

// rule is one line of .gitignore.
type rule struct {
	negated  bool
	dirOnly  bool
	baseOnly bool // matched against the last element of the path, at any depth
	pattern  *regexp.Regexp
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
	full = strings.ReplaceAll(full, "/", separator)
	for i := len(e) - 1; i >= 0; i-- {
		r, name := e[i], full
		if r.baseOnly {
			name = base
		}
		if (isDir || !r.dirOnly) && r.pattern.MatchString(name) {
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
	expr, err := translate(widen(line), r.baseOnly)
	if err == nil {
		r.pattern, err = regexp.Compile("(?s)^" + expr + "$")
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

// separator replaces the slashes of paths in regular expressions. It is no byte, so that no bracket expression matches it.
const separator = "\u2215"

const (
	anyName  = "[^" + separator + "]*"
	anyDepth = "(?:.*" + separator + ")?" // no or any directories, each with its slash
)

var (
	errEmptyElement = errors.New("matches nothing: it has two slashes in a row")
	errOpenBracket  = errors.New(`has a "[" without its "]"; write "\[" for the character itself`)

	// character is one character of a pattern, which a backslash may escape.
	character = regexp.MustCompile(`(?s)^\\?.`)
	// bracketItem is an element of a bracket expression: a class, a range, or a character.
	bracketItem = regexp.MustCompile(`(?s)^(?:\[:([^\]]*):\]|(\\.|[^\\])(?:-(\\.|[^\\\]]))?)`)
)

// translate converts a git pattern of widened bytes to a regular expression.
func translate(p string, baseOnly bool) (string, error) {
	var out strings.Builder
	empty := true // the present path element
	for p != "" {
		// Several stars differ from one only as a whole path element; at the end they match the entries of a directory, not the directory.
		stars := len(p) - len(strings.TrimLeft(p, "*"))
		whole := stars > 1 && empty && !baseOnly
		expr, size, err := anyName, max(stars, 1), error(nil)
		slash := false
		switch {
		case whole && stars == len(p):
			expr = ".*"
		case whole && p[stars] == '/':
			expr, size, slash = anyDepth, stars+1, true
		case stars > 0:
		case p[0] == '?':
			expr = "[^" + separator + "]"
		case p[0] == '[':
			expr, size, err = translateBracket(p)
		case p == `\`:
			err = errors.New(`ends in a backslash; write "\\" for the character itself`)
		default:
			c := character.FindString(p)
			literal, _ := utf8.DecodeLastRuneInString(c)
			expr, size, slash = regexp.QuoteMeta(string(literal)), len(c), literal == '/'
			if slash {
				expr = separator
			}
			if slash && empty {
				err = errEmptyElement
			}
		}
		if err != nil {
			return "", err
		}
		out.WriteString(expr)
		p, empty = p[size:], slash
	}
	if empty {
		return "", errEmptyElement
	}
	return out.String(), nil
}

// classes are the POSIX classes that git knows.
const classes = " alnum alpha blank cntrl digit graph lower print punct space upper xdigit "

// translateBracket translates the bracket expression at the start of p by git's rules: ! or ^ negates, ] is literal when first,
// a backslash escapes, [:class:] are the POSIX classes over ASCII, and no expression matches a slash. size is its length.
func translateBracket(p string) (expr string, size int, err error) {
	rest, expr := p[1:], "["
	negated := rest != "" && (rest[0] == '!' || rest[0] == '^')
	if negated {
		rest, expr = rest[1:], "[^"+separator
	}
	nothing := !negated
	for first := true; first || !strings.HasPrefix(rest, "]"); first = false {
		m := bracketItem.FindStringSubmatch(rest)
		if m == nil {
			return "", 0, errOpenBracket
		}
		rest = rest[len(m[0]):]
		if m[2] == "" {
			if !strings.Contains(classes, " "+m[1]+" ") {
				return "", 0, fmt.Errorf("has the unknown class %s", narrow(m[0]))
			}
			expr, nothing = expr+m[0], false
			continue
		}
		low, _ := utf8.DecodeLastRuneInString(m[2])
		high, _ := utf8.DecodeLastRuneInString(cmp.Or(m[3], m[2]))
		high = max(low, high) // git matches the first character of an inverted range
		expr += fmt.Sprintf(`\x{%x}-\x{%x}`, low, high)
		nothing = nothing && low == '/' && high == '/'
	}
	size = len(p) - len(rest) + 1
	if nothing {
		return "", 0, fmt.Errorf("has %s, which matches nothing", p[:size])
	}
	return expr + "]", size, nil
}

// widen encodes each byte as the rune of its value, since git matches bytes and regular expressions runes; names need not be UTF-8.
func widen(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(rune(s[i]))
	}
	return out.String()
}

// narrow reverts widen.
func narrow(s string) string {
	var out []byte
	for _, r := range s {
		out = append(out, byte(r))
	}
	return string(out)
}
