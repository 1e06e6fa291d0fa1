package validate

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// show renders a field for people: empty when it is not set, otherwise much as it is written in YAML. Maps are not
// shown.
func show(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	switch {
	case !m.Has(fd) || fd.IsMap():
		return ""
	case !fd.IsList():
		if fd.Kind() == protoreflect.StringKind {
			return m.Get(fd).String() // alone it needs no quotes
		}
		return showValue(m.Get(fd), fd)
	}
	parts := make([]string, m.Get(fd).List().Len())
	for i := range parts {
		parts[i] = showValue(m.Get(fd).List().Get(i), fd)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func showValue(v protoreflect.Value, fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return strconv.Quote(v.String())
	case protoreflect.MessageKind:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
			return d.AsDuration().String()
		}
		return showMessage(v.Message())
	}
	return fmt.Sprint(v.Interface())
}

func showMessage(m protoreflect.Message) string {
	var parts []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); m.Has(fd) {
			parts = append(parts, fd.TextName()+": "+show(m, fd))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func list(names []string) string { return strings.Join(names, ", ") }
