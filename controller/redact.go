package controller

import (
	"slices"
	"strings"
	"unicode"
)

const (
	// minSecret is the length in bytes from which an env value is taken for a secret: shorter ones would blot out ordinary
	// words.
	minSecret = 4
	redacted  = "[redacted]"
)

// redact takes the values of environment variables out of what a program printed, before it goes into an event. text is
// printable, and may be the end of more: then it may begin in the middle of a value.
func redact(text string, envs ...map[string]string) string {
	values := secrets(envs)
	for _, v := range values {
		text = strings.ReplaceAll(text, v, redacted)
	}
	for _, v := range values {
		for i := 1; len(v)-i >= minSecret; i++ {
			if rest, ok := strings.CutPrefix(text, v[i:]); ok {
				return redacted + rest
			}
		}
	}
	return text
}

// secrets are the values as they are and as printable would have them, the longest first: one may be a part of another.
func secrets(envs []map[string]string) (values []string) {
	for _, env := range envs {
		for _, value := range env {
			for _, v := range []string{value, printable([]byte(value))} {
				if len(v) >= minSecret {
					values = append(values, v)
				}
			}
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return values
}

// printable keeps what can stand in a message.
func printable(out []byte) string {
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(out), ""))
	return strings.TrimSpace(text)
}
