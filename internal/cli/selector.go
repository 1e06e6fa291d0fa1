package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// selector selects objects by their labels, as the selectors of kubectl do. It is the value of -l; several add up. The library of Kubernetes
// is not used, because it refuses keys and values that labels here may have.
type selector struct {
	texts []string
	all   []requirement
}

// requirement is one condition of a selector.
type requirement struct {
	key string
	// values are those that the label may have; nil: any.
	values []string
	// not turns the condition around. A label that is missing meets it.
	not bool
}

func (r requirement) meets(labels map[string]string) bool {
	value, ok := labels[r.key]
	return (ok && (r.values == nil || slices.Contains(r.values, value))) != r.not
}

// contradicts reports whether both conditions demand one value of a label, and not the same.
func (r requirement) contradicts(other requirement) bool {
	return r.key == other.key && !r.not && !other.not && len(r.values) == 1 && len(other.values) == 1 && r.values[0] != other.values[0]
}

// given reports whether there is a selector.
func (s *selector) given() bool { return s != nil && len(s.texts) > 0 }

// matches reports whether labels meet all conditions.
func (s *selector) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s.all, func(r requirement) bool { return !r.meets(labels) })
}

// equal returns the conditions that the daemon can check: labels with one value. whole reports whether there are no others.
func (s *selector) equal() (labels map[string]string, whole bool) {
	labels = map[string]string{}
	for _, r := range s.all {
		if !r.not && len(r.values) == 1 {
			labels[r.key] = r.values[0]
		}
	}
	return labels, len(labels) == len(s.all)
}

// Set adds the conditions of a text. It implements pflag.Value.
func (s *selector) Set(text string) error {
	for _, part := range splitSelector(text) {
		r, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.all, r.contradicts) {
			return fmt.Errorf("two values for %q; \"key in (a, b)\" selects either", r.key)
		}
		s.all = append(s.all, r)
	}
	s.texts = append(s.texts, text)
	return nil
}

func (s *selector) String() string { return strings.Join(s.texts, ",") }

// Type is the word for a value in help texts.
func (*selector) Type() string { return "selector" }

// splitSelector splits a text at the commas outside of parentheses and quotes.
func splitSelector(text string) (parts []string) {
	depth, quoted, start := 0, false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth <= 0:
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	return append(parts, text[start:])
}

var (
	setPattern = regexp.MustCompile(`^(.+?)\s+(in|notin)\s*\(([^()]*)\)$`)
	operators  = regexp.MustCompile(`!=|==|=`)

	errSelector = errors.New(`write key=value, key!=value, "key in (a, b)", "key notin (a, b)", key or '!key', with commas between several`)
)

// parseRequirement reads one condition.
func parseRequirement(text string) (requirement, error) {
	if m := setPattern.FindStringSubmatch(text); m != nil && !strings.ContainsAny(m[1], `="!`) {
		r := requirement{key: m[1], not: m[2] == "notin", values: []string{}}
		for _, one := range splitSelector(m[3]) {
			value, err := word(one)
			if err != nil || value == "" {
				return r, errSelector
			}
			r.values = append(r.values, value)
		}
		return r, bareKey(m[1])
	}
	if at := operators.FindStringIndex(unquoted(text)); at != nil {
		key, keyErr := word(text[:at[0]])
		value, valueErr := word(text[at[1]:])
		if key == "" || keyErr != nil || valueErr != nil {
			return requirement{}, errSelector
		}
		return requirement{key: key, values: []string{value}, not: text[at[0]:at[1]] == "!="}, nil
	}
	name, not := strings.CutPrefix(text, "!")
	if strings.HasPrefix(name, `"`) {
		key, err := word(name)
		return requirement{key: key, not: not}, err
	}
	return requirement{key: name, not: not}, bareKey(name)
}

// bareKey refuses what is rather a mistake in an expression than a key. Such a key can be quoted, or stand before "=".
func bareKey(key string) error {
	if key == "" || strings.ContainsAny(key, " \t()!\"") {
		return errSelector
	}
	return nil
}

// unquoted replaces a quoted key at the start of a text by letters, so that operators in it are none.
func unquoted(text string) string {
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil || quoted[0] != '"' {
		return text
	}
	return strings.Repeat("x", len(quoted)) + text[len(quoted):]
}

// word reads a key or a value, which may be quoted as in Go.
func word(text string) (string, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	plain, err := strconv.Unquote(text)
	if err != nil {
		return "", errSelector
	}
	return plain, nil
}

// selectorFlag adds -l. Its values complete to the labels of sandboxes.
func (a *app) selectorFlag(cmd *cobra.Command, usage string) *selector {
	s := &selector{}
	cmd.Flags().VarP(s, "selector", "l", usage+`: key=value, key!=value, "key in (a, b)", "key notin (a, b)", key, '!key'`)
	onFlag(cmd, "selector", a.completeLabels)
	return s
}

// namesOrSelector checks that a command has names or -l.
func namesOrSelector(cmd *cobra.Command, args []string, s *selector, what string) error {
	if (len(args) > 0) == s.given() {
		return usagef(cmd, "expected %s, or -l: one of the two", what)
	}
	return nil
}
