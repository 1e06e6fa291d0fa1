package admission

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// share decodes a message of the kind that carries data: it has integers, flags, and fields of type bytes, which then are parts of data. The
// protobuf library copies them, and at gigabytes the garbage collector had a fifth of the time of agboxd. It returns false for other messages, which
// it may have decoded in part.
func share(m protoreflect.Message, data []byte) bool {
	fields := m.Descriptor().Fields()
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		field := fields.ByNumber(number)
		if n < 0 || field == nil || field.IsList() || field.IsMap() {
			return false
		}
		data = data[n:]
		switch kind {
		case protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(data); n < 0 {
				return false
			}
			switch {
			case field.Kind() == protoreflect.BytesKind:
				m.Set(field, protoreflect.ValueOfBytes(v))
			case field.Kind() != protoreflect.MessageKind || !share(m.Mutable(field).Message(), v):
				return false
			}
		case protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(data); n < 0 {
				return false
			}
			switch field.Kind() {
			case protoreflect.Int64Kind:
				m.Set(field, protoreflect.ValueOfInt64(int64(v)))
			case protoreflect.BoolKind:
				m.Set(field, protoreflect.ValueOfBool(v != 0))
			default:
				return false
			}
		default:
			return false
		}
		data = data[n:]
	}
	return true
}
