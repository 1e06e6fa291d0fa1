package manifest

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// maxValues is the largest number of nodes read from one document; each use of an alias counts.
const maxValues = 200_000

// decoder fills messages from YAML according to their descriptors only, so a new proto field needs no change here.
//
// It continues after a mistake; see keep.
type decoder struct {
	anchors  map[string]ast.Node
	budget   int
	home     string // replaces "~"; empty: unknown
	mistakes Errors
	lines    map[string]int // of keys and of the items of lists, by fieldPath; nil: they are not recorded
}

func newDecoder(home string) *decoder {
	return &decoder{anchors: map[string]ast.Node{}, budget: maxValues, home: home}
}

func (d *decoder) message(node ast.Node, path string, m protoreflect.Message) error {
	entries, err := d.entries(node, path, forms[m.Descriptor().Name()])
	if err != nil {
		return err
	}
	fields := m.Descriptor().Fields()
	for _, e := range entries {
		switch fd := fields.ByName(protoreflect.Name(e.key)); {
		case fd == nil:
			err = unknown(e, path, names(fields))
		case isKey(fd):
			err = &Error{Line: e.line, Path: join(path, e.key), Text: "must be left out: the key above is the name"}
		default:
			err = d.field(e.value, join(path, e.key), m, fd)
		}
		if err := d.keep(err); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) field(node ast.Node, path string, m protoreflect.Message, fd protoreflect.FieldDescriptor) error {
	node, err := d.resolve(node)
	if err != nil || node.Type() == ast.NullType {
		return err // null leaves the field unset
	}
	switch {
	case fd.IsMap():
		pairs, err := d.stringMap(node, path)
		for key, value := range pairs {
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
		}
		return err
	case isKeyed(fd):
		return d.mapping(node, path, m.Mutable(fd).List(), fd)
	case fd.IsList():
		return d.list(node, path, m.Mutable(fd).List(), fd)
	}
	value, err := d.value(node, path, m.NewField(fd), fd)
	if err == nil {
		m.Set(fd, value)
	}
	return err
}

func (d *decoder) list(node ast.Node, path string, out protoreflect.List, fd protoreflect.FieldDescriptor) error {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		return &Error{Line: line(node), Path: path, Text: "must be a list" + listForm(fd)}
	}
	for i, item := range seq.Values {
		path := fmt.Sprintf("%s[%d]", path, i)
		d.record(path, line(item))
		value, err := d.item(item, path, out.NewElement(), fd)
		if err := d.keep(err); err != nil {
			return err
		}
		out.Append(value)
	}
	return nil
}

// item reads one value of a list; for empty, see value.
func (d *decoder) item(node ast.Node, path string, empty protoreflect.Value, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	node, err := d.resolve(node)
	if err != nil {
		return empty, err
	}
	if node.Type() == ast.NullType {
		return empty, &Error{Line: line(node), Path: path, Text: "must not be empty"}
	}
	return d.value(node, path, empty, fd)
}

// value reads one value. empty is a new value of the field; value fills it if it is a message.
func (d *decoder) value(node ast.Node, path string, empty protoreflect.Value, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		s, err := d.text(node, path)
		if err == nil && isHostPath(fd) {
			s, err = d.expand(node, path, s)
		}
		return protoreflect.ValueOfString(s), err
	case protoreflect.BoolKind:
		b, ok := node.(*ast.BoolNode)
		if !ok {
			return empty, &Error{Line: line(node), Path: path, Text: "must be true or false"}
		}
		return protoreflect.ValueOfBool(b.Value), nil
	case protoreflect.Uint32Kind:
		n, err := whole(node, path)
		return protoreflect.ValueOfUint32(n), err
	case protoreflect.DoubleKind:
		n, err := number(node, path, fd)
		return protoreflect.ValueOfFloat64(n), err
	case protoreflect.MessageKind:
		if duration, ok := empty.Message().Interface().(*durationpb.Duration); ok {
			return empty, readDuration(node, path, duration)
		}
		return empty, d.message(node, path, empty.Message())
	}
	return empty, &Error{Line: line(node), Path: path, Text: "has a type that cannot be written in YAML"}
}

// text reads a string. A number or a boolean is the text as it is written, such as "1.10" or "0x1".
func (d *decoder) text(node ast.Node, path string) (string, error) {
	node, err := d.resolve(node)
	if err != nil {
		return "", err
	}
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.NullNode:
		return "", nil
	case ast.ScalarNode:
		return n.GetToken().Value, nil
	}
	return "", &Error{Line: line(node), Path: path, Text: "must be a string"}
}

func (d *decoder) stringMap(node ast.Node, path string) (map[string]string, error) {
	entries, err := d.entries(node, path, mapForm)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		out[e.key], err = d.text(e.value, join(path, e.key))
		if err := d.keep(err); err != nil {
			return nil, err
		}
	}
	return out, nil
}
