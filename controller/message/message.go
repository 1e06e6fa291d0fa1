// Package message turns errors and program output into text for users.
package message

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
)

// RecordsAway is the status of every sandbox and agent while records of others, and the instances that they name, may be missing.
const RecordsAway = "waiting until the records of the lost database are rebuilt"

// classes are the errors that only classify another one. Their texts are for programs.
var classes = []error{
	errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrResourceExhausted, errdefs.ErrAlreadyExists, errdefs.ErrPermissionDenied,
	errdefs.ErrFailedPrecondition, errdefs.ErrConflict, errdefs.ErrAborted, errdefs.ErrUnavailable, errdefs.ErrInternal,
	errdefs.ErrUnauthenticated, errdefs.ErrOutOfRange, errdefs.ErrUnknown,
}

// fullID is an ID of the engine.
var fullID = regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{52}\b`)

// Of returns the text of an error for people: without the names of the classes at its end, one for each time it was wrapped, and with the
// engine's IDs as short as docker ps shows them.
func Of(err error) string {
	text := err.Error()
	for cut := true; cut; {
		cut = false
		for _, class := range classes {
			if rest, ok := strings.CutSuffix(text, ": "+class.Error()); ok && errors.Is(err, class) {
				text, cut = rest, true
			}
		}
	}
	return fullID.ReplaceAllString(text, "$1")
}

const (
	// minSecret is the length in bytes from which an env value is taken for a secret: shorter ones would blot out ordinary
	// words.
	minSecret = 4
	redacted  = "[redacted]"
)

// Redact replaces the values of environment variables in what a program printed, before it is recorded or shown. text is the result of
// Printable. It may be the end of a longer text and then begin in the middle of a value.
func Redact(text string, envs ...map[string]string) string {
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

// secrets are the values as they are and as Printable would have them, the longest first: one may be a part of another.
func secrets(envs []map[string]string) (values []string) {
	for _, env := range envs {
		for _, value := range env {
			for _, v := range []string{value, Printable([]byte(value))} {
				if len(v) >= minSecret {
					values = append(values, v)
				}
			}
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return values
}

// Printable drops what is not UTF-8 or not printable, except newlines and tabs, and trims spaces.
func Printable(out []byte) string {
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(out), ""))
	return strings.TrimSpace(text)
}
