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
)

// isHostPath reports whether "~" in the field stands for the home directory.
func isHostPath(fd protoreflect.FieldDescriptor) bool {
	in := fd.Parent().Name()
	return fd.Name() == "source" && (in == "MountSpec" || in == "CopySpec")
}

func (d *decoder) expand(node ast.Node, path, source string) (string, error) {
	switch {
	case !strings.HasPrefix(source, "~"):
		return source, nil
	case source != "~" && !strings.HasPrefix(source, "~/"):
		return "", &Error{Line: line(node), Path: path, Text: `only "~" and "~/..." are known, not the homes of other users`}
	case d.home == "":
		return "", &Error{Line: line(node), Path: path, Text: `"~" cannot be expanded: the home directory is not known`}
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

// number reads a finite, unquoted number.
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

// readDuration accepts Go's notation, a bare 0, and protobuf's JSON notation, whose seconds have no limit.
func readDuration(node ast.Node, path string, out *durationpb.Duration) error {
	text := ""
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode:
		text = n.GetToken().Value // "0" is the only number that parses without a unit
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
