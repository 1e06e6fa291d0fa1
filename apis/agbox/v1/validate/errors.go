package validate

import (
	"fmt"
	"strconv"
	"strings"
)

// Error is one broken rule.
type Error struct {
	// Field is the path of the field as in the protos: "image", "mounts[1].target", "envs[PATH]".
	Field string
	// Message is a whole sentence without its full stop. It names the field.
	Message string
}

// Error returns the message.
func (e Error) Error() string { return e.Message }

// Errors holds every broken rule of one message. Empty means valid.
type Errors []Error

// Error joins the messages: exactly the rule's text when there is one, "a; b; c" when there are several.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Message
	}
	return strings.Join(texts, "; ")
}

// Err returns e as an error, or nil when it is empty.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// add appends a rule whose text is the field followed by what is wrong with it.
func (e *Errors) add(field, format string, args ...any) {
	*e = append(*e, Error{Field: field, Message: field + " " + fmt.Sprintf(format, args...)})
}

// addIf adds a mistake if it is there.
func (e *Errors) addIf(broken bool, field, format string, args ...any) {
	if broken {
		e.add(field, format, args...)
	}
}

// checkEach checks the entries of a list, each with its path, unless there are more than limit.
func checkEach[T any](errs *Errors, field string, list []T, limit int, check func(at string, one T)) {
	if len(list) > limit {
		errs.add(field, "has %d entries; the limit is %d", len(list), limit)
		return
	}
	for i, one := range list {
		check(fmt.Sprintf("%s[%d]", field, i), one)
	}
}

// short quotes s, cut to a length that fits an error text.
func short(s string) string {
	const limit = 64
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return fmt.Sprintf("%q", s)
}

// keyed returns the path of one entry of a map field. A key that could not be told apart in a text, since it is empty or
// does not print, is quoted.
func keyed(field, key string) string {
	const limit = 64
	if len(key) > limit {
		key = key[:limit] + "..."
	}
	key = strings.ToValidUTF8(key, "?")
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		key = strconv.Quote(key)
	}
	return field + "[" + key + "]"
}
