// Package admission bounds the memory of the requests of a gRPC server: that of each before it is decoded, and the sum of all
// concurrent ones.
package admission

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Costs of the parts of a request in bytes: for decoding, validating, copying and storing. Measured: two million empty
// messages use 930 MB decoded, and more than twice that with the list of all broken rules.
const (
	costOfMessage  = 8 << 10
	costOfMapEntry = 1 << 10
	costOfValue    = 128
	costOfByte     = 4
	// maxDepth is far above the nesting of any request.
	maxDepth = 32
)

// TooCostly means that a request needs more memory than one request may use.
type TooCostly struct {
	// Field is the field that went past the limit, as create_spec.required_services.
	Field string
	// Limit is in bytes.
	Limit int64
}

// Error implements error.
func (e *TooCostly) Error() string {
	return fmt.Sprintf("%s has too many or too large values: the request would take more than %d MiB of memory", e.Field, e.Limit>>20)
}

// meter adds up the cost of one request.
type meter struct {
	left, limit int64
	texts       map[protoreflect.FullName]func([]byte) int64
}

// charge subtracts the cost of a field.
func (m *meter) charge(cost int64, field string) error {
	if m.left -= cost; m.left < 0 {
		return &TooCostly{Field: field, Limit: m.limit}
	}
	return nil
}

// message adds up the fields of an encoded message. Its time is linear in the size, and it copies nothing.
func (m *meter) message(desc protoreflect.MessageDescriptor, b []byte, depth int) error {
	if depth > maxDepth {
		return errors.New("the request is nested too deeply")
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := m.field(desc.Fields().ByNumber(num), typ, b[n:n+size], depth); err != nil {
			return err
		}
		b = b[n+size:]
	}
	return nil
}

func (m *meter) field(field protoreflect.FieldDescriptor, typ protowire.Type, value []byte, depth int) error {
	cost := costOfValue + costOfByte*int64(len(value))
	if field == nil { // kept as it is
		return m.charge(cost, "a field that this agboxd does not know")
	}
	name := string(field.Name())
	if typ != protowire.BytesType {
		return m.charge(cost, name)
	}
	inner, _ := protowire.ConsumeBytes(value)
	if weigh := m.texts[field.FullName()]; weigh != nil {
		return m.charge(cost+weigh(inner), name)
	}
	switch kind := field.Kind(); {
	case field.IsMap():
		return m.charge(costOfMapEntry+cost, name)
	case kind == protoreflect.MessageKind:
		if err := m.charge(costOfMessage, name); err != nil {
			return err
		}
		return within(name, m.message(field.Message(), inner, depth+1))
	case field.IsList() && kind != protoreflect.StringKind && kind != protoreflect.BytesKind: // packed: one byte may decode to a word
		return m.charge(costOfValue+costOfByte*8*int64(len(inner)), name)
	}
	return m.charge(cost, name)
}

// within names the outer field of an error.
func within(name string, err error) error {
	var costly *TooCostly
	if errors.As(err, &costly) {
		costly.Field = name + "." + costly.Field
	}
	return err
}
