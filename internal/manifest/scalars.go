package manifest

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
)

// isHostPath reports whether "~" in the field stands for the home directory.
func isHostPath(fd protoreflect.FieldDescriptor) bool {
	in := fd.Parent().Name()
	return fd.Name() == "source" && (in == "MountSpec" || in == "CopySpec") || fd.Name() == "file" && in == "SecretSpec"
}

func (d *decoder) expand(node ast.Node, path, source string) (string, error) {
	switch {
	case !strings.HasPrefix(source, "~"):
		return source, nil
	case source != "~" && !strings.HasPrefix(source, "~/"):
		return "", &Error{Line: line(node), Path: path, Text: `only "~" and "~/..." are known, not the homes of other users`}
	case d.home == "":
		return "", &Error{Line: line(node), Path: path, Text: `"~" cannot be expanded: the home directory on the host of the daemon is not known; write an absolute path`}
	}
	return filepath.Join(d.home, strings.TrimPrefix(source, "~")), nil
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

// number reads a finite number. Only a cpu_limit may be text, as quantity.CPUs reads it: 500m is 0.5.
func number(node ast.Node, path string, fd protoreflect.FieldDescriptor) (float64, error) {
	text := `must be a number, such as 2 or 0.5`
	if fd.Name() == "cpu_limit" {
		text += `, or thousandths of a CPU, such as 500m`
	}
	switch n := node.(type) {
	case *ast.StringNode:
		if v, err := quantity.CPUs(n.Value); err == nil && fd.Name() == "cpu_limit" {
			return v, nil
		}
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
	return 0, &Error{Line: line(node), Path: path, Text: text}
}

// readDuration accepts what quantity.Duration does, a bare 0, and protobuf's JSON notation, whose seconds have no limit.
func readDuration(node ast.Node, path string, out *durationpb.Duration) error {
	text := ""
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode:
		text = n.GetToken().Value // "0" is the only number that parses without a unit
	}
	if v, err := quantity.Duration(text); err == nil {
		out.Seconds, out.Nanos = int64(v/time.Second), int32(v%time.Second)
		return nil
	}
	if strings.HasSuffix(text, "s") && protojson.Unmarshal([]byte(strconv.Quote(text)), out) == nil {
		return nil
	}
	return &Error{Line: line(node), Path: path, Text: `must be a duration with a unit, such as "30m", "1800s" or "1d"`}
}

// keyed are the messages whose lists are written as mappings from their names.
var keyed = map[protoreflect.FullName]bool{
	(&agboxv1.ServiceSpec{}).ProtoReflect().Descriptor().FullName(): true,
	(&agboxv1.VolumeSpec{}).ProtoReflect().Descriptor().FullName():  true,
	(&agboxv1.SecretSpec{}).ProtoReflect().Descriptor().FullName():  true,
}

// isKeyed reports whether fd is a list that is written as a mapping from the names of its messages.
func isKeyed(fd protoreflect.FieldDescriptor) bool {
	return fd.IsList() && fd.Message() != nil && keyed[fd.Message().FullName()]
}

// keyedForm is an example of such a mapping.
func keyedForm(fd protoreflect.FieldDescriptor) string {
	return keyedForms[fd.Message().Name()]
}

// mapping reads a mapping from names to messages. It keeps their order, in which required services start.
func (d *decoder) mapping(node ast.Node, path string, out protoreflect.List, fd protoreflect.FieldDescriptor) error {
	if _, ok := node.(*ast.SequenceNode); ok {
		return &Error{Line: line(node), Path: path, Text: `must be a mapping from the names, such as ` + keyedForm(fd) + `, not a list`}
	}
	entries, err := d.entries(node, path, keyedForm(fd))
	if err != nil {
		return err
	}
	for _, e := range entries {
		one := out.NewElement()
		err := d.message(e.value, join(path, e.key), one.Message())
		one.Message().Set(fd.Message().Fields().ByName(nameField), protoreflect.ValueOfString(e.key))
		if err := d.keep(err); err != nil {
			return err
		}
		out.Append(one)
	}
	return nil
}

// nameField is the field of a message that is the key in the mapping.
const nameField protoreflect.Name = "name"

// isKey reports whether fd is the name inside such a message. Such a key is refused even if it repeats the name: users would have to change
// the name in two places.
func isKey(fd protoreflect.FieldDescriptor) bool {
	return fd.Name() == nameField && keyed[fd.Parent().FullName()]
}

// names returns the keys that a mapping may have.
func names(fields protoreflect.FieldDescriptors) []string {
	var all []string
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !isKey(fd) {
			all = append(all, string(fd.Name()))
		}
	}
	return all
}
