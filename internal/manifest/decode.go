package manifest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// maxValues bounds the nodes read of one document, aliases counted each time.
const maxValues = 200_000

// decoder fills messages from YAML, led by their descriptors alone: a field that is added to the proto is read without
// a change here.
type decoder struct {
	anchors map[string]ast.Node
	budget  int
}

func newDecoder() *decoder { return &decoder{anchors: map[string]ast.Node{}, budget: maxValues} }

func (d *decoder) message(node ast.Node, path string, m protoreflect.Message) error {
	entries, err := d.entries(node, path)
	if err != nil {
		return err
	}
	fields := m.Descriptor().Fields()
	for _, e := range entries {
		fd := fields.ByName(protoreflect.Name(e.key))
		if fd == nil {
			return unknown(e, path, names(fields))
		}
		if err := d.field(e.value, join(path, e.key), m, fd); err != nil {
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
	case isServices(fd):
		return d.services(node, path, m.Mutable(fd).List())
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
		return &Error{Line: line(node), Path: path, Text: "must be a list"}
	}
	for i, item := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		item, err := d.resolve(item)
		if err != nil {
			return err
		}
		if item.Type() == ast.NullType {
			return &Error{Line: line(item), Path: at, Text: "must not be empty"}
		}
		value, err := d.value(item, at, out.NewElement(), fd)
		if err != nil {
			return err
		}
		out.Append(value)
	}
	return nil
}

// value reads one value; empty is a new value of the field, to be filled when it is a message.
func (d *decoder) value(node ast.Node, path string, empty protoreflect.Value, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		s, err := d.text(node, path)
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
		n, err := number(node, path)
		return protoreflect.ValueOfFloat64(n), err
	case protoreflect.MessageKind:
		if duration, ok := empty.Message().Interface().(*durationpb.Duration); ok {
			return empty, readDuration(node, path, duration)
		}
		return empty, d.message(node, path, empty.Message())
	}
	return empty, &Error{Line: line(node), Path: path, Text: "has a type that cannot be written in YAML"}
}

// text reads a string. Numbers and booleans are refused: YAML would already have changed "1.10" or "0x1".
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
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		return "", &Error{Line: line(node), Path: path, Text: "must be a string"}
	}
	return "", &Error{Line: line(node), Path: path, Text: "must be a string: put it in quotes"}
}

func (d *decoder) stringMap(node ast.Node, path string) (map[string]string, error) {
	entries, err := d.entries(node, path)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		if out[e.key], err = d.text(e.value, join(path, e.key)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func whole(node ast.Node, path string) (uint32, error) {
	n, ok := node.(*ast.IntegerNode)
	if ok {
		if v, ok := n.Value.(uint64); ok && v <= 1<<32-1 {
			return uint32(v), nil
		}
	}
	return 0, &Error{Line: line(node), Path: path, Text: "must be a whole number from 0 to 4294967295"}
}

// number reads a number that is written as one: neither infinite nor in quotes.
func number(node ast.Node, path string) (float64, error) {
	switch n := node.(type) {
	case *ast.FloatNode:
		return n.Value, nil
	case *ast.IntegerNode:
		switch v := n.Value.(type) {
		case uint64:
			return float64(v), nil
		case int64:
			return float64(v), nil
		}
	}
	return 0, &Error{Line: line(node), Path: path, Text: `must be a number, such as 2 or 0.5`}
}

// readDuration accepts Go's notation, a bare 0, and that of protobuf's JSON, which has the same seconds without a limit.
func readDuration(node ast.Node, path string, out *durationpb.Duration) error {
	text := ""
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode:
		text = n.GetToken().Value // only "0" parses without a unit
	}
	if v, err := time.ParseDuration(text); err == nil {
		out.Seconds, out.Nanos = int64(v/time.Second), int32(v%time.Second)
		return nil
	}
	if strings.HasSuffix(text, "s") && protojson.Unmarshal([]byte(strconv.Quote(text)), out) == nil {
		return nil
	}
	return &Error{Line: line(node), Path: path, Text: `must be a duration with a unit, such as "30m" or "1800s"`}
}
