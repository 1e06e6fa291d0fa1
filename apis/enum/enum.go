// Package enum names the values of the API's enums for people.
package enum

import (
	"strconv"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Word is the name of a value without the prefix that all values of its enum share: "READY" for SANDBOX_STATE_READY. A value that this
// version does not know is its number.
func Word(v protoreflect.Enum) string {
	d := v.Descriptor().Values().ByNumber(v.Number())
	if d == nil {
		return strconv.Itoa(int(v.Number()))
	}
	return strings.TrimPrefix(string(d.Name()), prefix(v.Descriptor().Name()))
}

// prefix is SANDBOX_STATE_ for SandboxState.
func prefix(enum protoreflect.Name) string {
	var b strings.Builder
	for i, r := range string(enum) {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	b.WriteByte('_')
	return b.String()
}
