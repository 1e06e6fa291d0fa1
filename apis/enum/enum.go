// Package enum names the values of the API's enums for people.
package enum

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Word is the name of a value without the prefix that all values of its enum share: "READY" for SANDBOX_STATE_READY. A value that this
// version does not know is its number.
func Word(v protoreflect.Enum) string { return WordOf(v.Descriptor(), v.Number()) }

// WordOf is Word for a value that is given by its number.
func WordOf(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	values := enum.Values()
	d := values.ByNumber(number)
	if d == nil {
		return strconv.Itoa(int(number))
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.TrimPrefix(string(d.Name()), prefix)
}

// Values returns all values of an enum that this version knows, by their numbers, without the unspecified one.
func Values[E interface {
	~int32
	protoreflect.Enum
}]() (all []E) {
	var zero E
	values := zero.Descriptor().Values()
	for i := range values.Len() {
		if n := values.Get(i).Number(); n != 0 {
			all = append(all, E(n))
		}
	}
	return all
}
