// Package enum names the values of the API's enums for people.
package enum

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Word is the name of a value without the prefix that all values of its enum share: "READY" for SANDBOX_STATE_READY. A value that this
// version does not know is its number.
func Word(v protoreflect.Enum) string {
	values := v.Descriptor().Values()
	d := values.ByNumber(v.Number())
	if d == nil {
		return strconv.Itoa(int(v.Number()))
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.TrimPrefix(string(d.Name()), prefix)
}
